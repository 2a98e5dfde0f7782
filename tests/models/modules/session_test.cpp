// Sessions: what a pass changes and when, and how rows go back, with layers that can be cut and one that cannot.
#include "models/modules/session.h"

#include <ATen/ATen.h>

#include <halfbyte/error.h>

#include "models/modules/key_value_cache.h"
#include "tests/catch.h"

namespace halfbyte::models {
namespace {

// A recurrence: the sum of all that was read. Reading leaves the old sum until it is committed.
class Sum final : public LayerState {
 public:
  explicit Sum(std::int64_t batch) : sums_(static_cast<std::size_t>(batch)), next_(sums_) {}
  void read(std::int64_t row, double value) { next_.at(index(row)) = sums_.at(index(row)) + value; }
  double sum(std::int64_t row) const { return sums_.at(index(row)); }

  bool can_rewind() const noexcept override { return false; }
  void commit(std::int64_t row, std::int64_t) override { sums_[index(row)] = next_[index(row)]; }
  void reset(std::int64_t row) override { sums_[index(row)] = 0; }
  std::vector<at::Tensor> save(std::int64_t row) const override { return {at::tensor(sum(row), at::kDouble)}; }
  void restore(std::int64_t row, const std::vector<at::Tensor>& saved) override {
    sums_[index(row)] = saved.at(0).item<double>();
  }
  void grow(std::int64_t, std::int64_t) override {}

 private:
  static std::size_t index(std::int64_t row) { return static_cast<std::size_t>(row); }
  std::vector<double> sums_, next_;
};

Session session_of(std::int64_t batch, bool has_recurrence) {
  std::vector<std::unique_ptr<LayerState>> layers;
  layers.push_back(std::make_unique<KeyValueCache>(KeyValueCache::Shape{batch, 2, 16, 4}, at::kFloat, at::kCPU));
  layers.push_back(nullptr);  // a layer that keeps nothing
  if (has_recurrence) layers.push_back(std::make_unique<Sum>(batch));
  return Session(batch, 16, std::move(layers), {}, at::kCPU);
}

// One token of this value in every row.
void pass(Session& session, double value) {
  for (std::int64_t row = 0; row < session.batch(); ++row) session.state<Sum>(2).read(row, value);
  session.commit(0, session.batch(), 1);
}

TEST_CASE("a pass counts from its commit on, and not in rows that are held", "[session]") {
  Session session = session_of(2, true);
  session.state<Sum>(2).read(0, 5);
  CHECK(session.state<Sum>(2).sum(0) == 0);
  CHECK(session.length(0) == 0);
  pass(session, 3);
  session.hold(1);
  pass(session, 4);
  CHECK(session.length(0) == 2);
  CHECK(session.length(1) == 1);
  CHECK(session.state<Sum>(2).sum(0) == 7);
  CHECK(session.state<Sum>(2).sum(1) == 3);
  session.reset(1);
  pass(session, 1);
  CHECK(session.length(1) == 1);
  CHECK(session.state<Sum>(2).sum(1) == 1);
}

TEST_CASE("keys and values are cut anywhere", "[session]") {
  Session session = session_of(2, false);
  CHECK(session.can_rewind());
  session.commit(0, 2, 9);
  session.rewind(0, 4);
  CHECK(session.length(0) == 4);
  CHECK(session.length(1) == 9);
  CHECK_THROWS_WITH(session.rewind(0, 5), Catch::Contains("has 4 tokens; it cannot be cut to 5"));
  CHECK_THROWS_AS(session.rewind(0, -1), Error);
  CHECK(session.go_back(1, 7, {}) == 7);
  CHECK(session.go_back(1, 20, {}) == 7);
  session.hold(0);
  CHECK(session.go_back(0, 4, {}) == 4);
  session.commit(0, 1, 1);
  CHECK(session.length(0) == 5);
}

TEST_CASE("a recurrent layer goes back to snapshots, to nothing, and nowhere else", "[session]") {
  Session session = session_of(1, true);
  CHECK_FALSE(session.can_rewind());
  for (const double value : {1, 2, 3}) pass(session, value);
  const Snapshot at_three = session.snapshot(0);
  for (const double value : {10, 20}) pass(session, value);
  const Snapshot at_five = session.snapshot(0);
  pass(session, 100);
  CHECK_THROWS_WITH(session.rewind(0, 3), Catch::Contains("only a snapshot brings back"));
  const std::vector<Snapshot> both = {at_three, at_five};
  SECTION("to the longest that fits") {
    CHECK(session.go_back(0, 5, both) == 5);
    CHECK(session.state<Sum>(2).sum(0) == 36);
    CHECK(session.go_back(0, 4, both) == 3);
    CHECK(session.state<Sum>(2).sum(0) == 6);
  }
  SECTION("to nothing where none fits") {
    CHECK(session.go_back(0, 2, both) == 0);
    CHECK(session.state<Sum>(2).sum(0) == 0);
  }
  SECTION("it stays where it is asked for no less") {
    CHECK(session.go_back(0, 6, both) == 6);
    CHECK(session.state<Sum>(2).sum(0) == 136);
  }
}

TEST_CASE("a snapshot of what was cut off is refused, of what was not is good", "[session]") {
  Session session = session_of(2, true);
  for (const double value : {1, 2, 3}) pass(session, value);
  const Snapshot early = session.snapshot(0);
  const Snapshot other_row = session.snapshot(1);
  pass(session, 4);
  const Snapshot late = session.snapshot(0);
  session.restore(early);
  CHECK(session.length(0) == 3);
  CHECK(session.length(1) == 4);
  pass(session, 50);
  pass(session, 60);
  CHECK(early.is_good());
  CHECK_FALSE(late.is_good());
  CHECK_THROWS_WITH(session.restore(late), Catch::Contains("has been shorter than the 4 tokens"));
  session.restore(early);
  CHECK(session.state<Sum>(2).sum(0) == 6);
  session.restore(other_row);
  CHECK(session.length(1) == 3);
}

TEST_CASE("a session that grows keeps what its layers have", "[session]") {
  Session session = session_of(2, false);
  const auto cache = [&]() -> KeyValueCache& { return session.state<KeyValueCache>(0); };
  cache().keys(at::kFloat).fill_(7);
  cache().values(at::kFloat).fill_(8);
  session.commit(0, 2, 5);
  const Snapshot before = session.snapshot(0);
  session.grow(32);
  CHECK(session.capacity() == 32);
  CHECK(cache().keys(at::kFloat).sizes() == at::IntArrayRef({2, 2, 32, 4}));
  CHECK((cache().keys(at::kFloat).narrow(2, 0, 5) == 7).all().item<bool>());
  CHECK((cache().values(at::kFloat).narrow(2, 0, 5) == 8).all().item<bool>());
  session.commit(0, 1, 20);
  session.restore(before);
  CHECK(session.length(0) == 5);
  CHECK_THROWS_AS(session.grow(16), Error);
}

}  // namespace
}  // namespace halfbyte::models

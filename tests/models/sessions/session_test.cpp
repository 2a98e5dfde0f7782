// Sessions: what a pass changes and when, what forks share, and how a session goes back, with layers that can be cut
// anywhere, to their window, and nowhere.
#include "models/sessions/session.h"

#include <ATen/ATen.h>

#include <halfbyte/error.h>

#include "models/modules/key_value_cache.h"
#include "tests/catch.h"

namespace halfbyte::models {
namespace {

// A recurrence: the sum of all that was read. Reading leaves the old sum until it is committed.
class Sum final : public LayerState, public StoredState {
 public:
  void read(double value) { next_ = sum_ + value; }
  double sum() const { return sum_; }

  std::unique_ptr<LayerState> fork() const override { return std::make_unique<Sum>(*this); }
  void commit(std::int64_t) override { sum_ = next_; }
  std::int64_t least(std::int64_t length) const noexcept override { return length; }
  void cut(std::int64_t length) override { sum_ = length == 0 ? 0 : sum_; }
  std::int64_t bytes() const noexcept override { return 8; }
  std::int64_t bytes_for(std::int64_t) const noexcept override { return bytes(); }
  void visit_memory(const MemoryVisitor& visit) const override { visit(this, 8); }
  std::vector<StateTensor> tensors(std::int64_t) const override {
    return {{"sum", {1}, at::kDouble, [sum = sum_] { return at::full({1}, sum, at::kDouble); }}};
  }
  void restore(std::int64_t, const LayerSource& source) override {
    sum_ = source.take("sum", {1}, at::kDouble).item<double>();
  }

 private:
  double sum_ = 0, next_ = 0;
};

enum class Kind { kAll, kWindow, kChunks, kRecurrence };

constexpr std::int64_t kWindow = 100;

Session session_of(Kind kind) {
  std::vector<std::unique_ptr<LayerState>> layers;
  const Reach reach = kind == Kind::kWindow   ? Reach{.window = kWindow}
                      : kind == Kind::kChunks ? Reach{.window = kWindow, .is_chunked = true}
                                              : Reach{};
  layers.push_back(std::make_unique<KeyValueCache>(KeyValueCache::Shape{2, 4, 3, reach}, at::kFloat, at::kCPU));
  layers.push_back(nullptr);  // a layer that keeps nothing
  if (kind == Kind::kRecurrence) layers.push_back(std::make_unique<Sum>());
  return Session(std::move(layers));
}

KeyValueCache& cache_of(const Session& session) { return session.state<KeyValueCache>(0); }

// Keys are their positions, values their negatives, each plus `offset`.
void read(Session& session, std::int64_t tokens, double offset = 0) {
  const at::Tensor positions = at::arange(tokens).add(session.length()).to(at::kFloat).view({tokens, 1, 1});
  const at::Tensor shown = positions + offset;
  cache_of(session).store(session.length(), shown.expand({tokens, 2, 4}), shown.neg().expand({tokens, 2, 3}));
  session.commit(tokens);
}

bool has(const Session& session, std::int64_t begin, std::int64_t end, double offset = 0) {
  if (begin == end) return true;
  const at::Tensor wanted = at::arange(begin, end).to(at::kFloat).add(offset).view({1, end - begin, 1});
  return at::equal(cache_of(session).keys(begin, end - begin), wanted.expand({2, end - begin, 4})) &&
         at::equal(cache_of(session).values(begin, end - begin), wanted.neg().expand({2, end - begin, 3}));
}

TEST_CASE("a pass counts from its commit on", "[session]") {
  Session session = session_of(Kind::kRecurrence);
  session.state<Sum>(2).read(5);
  CHECK(session.state<Sum>(2).sum() == 0);
  CHECK(session.length() == 0);
  session.commit(1);
  CHECK(session.state<Sum>(2).sum() == 5);
  CHECK(session.length() == 1);
}

TEST_CASE("keys and values stand where they were stored, over the borders of blocks", "[session]") {
  Session session = session_of(Kind::kAll);
  for (const std::int64_t tokens : {1, 62, 1, 1, 200, 3}) read(session, tokens);
  CHECK(session.length() == 268);
  CHECK(has(session, 0, 268));
  CHECK(has(session, 63, 65));
  CHECK(session.bytes() == 5 * 64 * 2 * (4 + 3) * 4);
  CHECK(session.bytes() == session.bytes_for(268));
}

TEST_CASE("keys and values are cut anywhere, and others come there", "[session]") {
  Session session = session_of(Kind::kAll);
  read(session, 150);
  CHECK(session.least() == 0);
  session.cut(70);
  CHECK(session.length() == 70);
  CHECK(session.bytes() == 2 * 64 * 2 * (4 + 3) * 4);
  CHECK_THROWS_WITH(session.cut(71), Catch::Contains("70 tokens cannot be cut to 71"));
  CHECK_THROWS_AS(session.cut(-1), Error);
  read(session, 80, 0.5);
  CHECK(has(session, 0, 70));
  CHECK(has(session, 70, 150, 0.5));
  CHECK(session.go_back(100, {}) == 100);
  CHECK(session.go_back(120, {}) == 100);
  CHECK(session.go_back(0, {}) == 0);
  CHECK(session.bytes() == 0);
}

TEST_CASE("forks share blocks until one of them writes there", "[session]") {
  Session session = session_of(Kind::kAll);
  read(session, 100);
  Session fork = session.fork();
  CHECK(fork.length() == 100);
  CHECK(cache_of(fork).key_blocks()[0] == cache_of(session).key_blocks()[0]);
  CHECK(cache_of(fork).key_blocks()[1] == cache_of(session).key_blocks()[1]);
  read(fork, 40, 0.5);
  CHECK(cache_of(fork).key_blocks()[0] == cache_of(session).key_blocks()[0]);
  CHECK(cache_of(fork).key_blocks()[1] != cache_of(session).key_blocks()[1]);
  const std::byte* const alone = cache_of(session).key_blocks()[1];
  read(session, 20);
  CHECK(cache_of(session).key_blocks()[1] == alone);  // nobody else has it any more
  CHECK(has(session, 0, 120));
  CHECK(has(fork, 0, 100));
  CHECK(has(fork, 100, 140, 0.5));
}

TEST_CASE("blocks that no later token sees are let go", "[session]") {
  for (const Kind kind : {Kind::kWindow, Kind::kChunks}) {
    Session session = session_of(kind);
    for (int i = 0; i < 400; ++i) read(session, 1);
    constexpr std::int64_t kOfBlock = 64 * 2 * (4 + 3) * 4;
    CHECK(session.bytes() <= 4 * kOfBlock);  // of 400 tokens there are 7
    CHECK(session.bytes() <= session.bytes_for(400));
    const std::int64_t first = kind == Kind::kWindow ? 401 - kWindow : 400;
    CHECK(has(session, first - 64, 400));
    CHECK(cache_of(session).key_blocks()[0] == nullptr);
    // What is left serves whatever it may be cut to.
    const std::int64_t least = session.least();
    CHECK(least > kWindow);
    CHECK(least <= 400 - KeyValueCache::kSlack);
    CHECK_THROWS_AS(session.cut(least - 1), Error);
    session.cut(least);
    CHECK(has(session, Reach{kWindow, kind == Kind::kChunks}.first_seen(least), least));
    read(session, 100, 0.5);
    CHECK(has(session, least, least + 100, 0.5));
    session.cut(0);
    read(session, 30);
    CHECK(has(session, 0, 30));
    CHECK(session.least() == 0);
  }
}

TEST_CASE("a recurrent layer goes back to forks, to nothing, and nowhere else", "[session]") {
  Session session = session_of(Kind::kRecurrence);
  const auto pass = [&](double value) {
    session.state<Sum>(2).read(value);
    read(session, 1);
  };
  for (const double value : {1, 2, 3}) pass(value);
  std::vector<Session> both;
  both.push_back(session.fork());
  for (const double value : {10, 20}) pass(value);
  both.push_back(session.fork());
  pass(100);
  CHECK_THROWS_WITH(session.cut(3), Catch::Contains("it can to 0, and to 6 and more"));
  SECTION("to the longest that fits") {
    CHECK(session.go_back(5, both) == 5);
    CHECK(session.state<Sum>(2).sum() == 36);
    CHECK(session.go_back(4, both) == 3);
    CHECK(session.state<Sum>(2).sum() == 6);
    CHECK(has(session, 0, 3));
  }
  SECTION("to nothing where none fits") {
    CHECK(session.go_back(2, both) == 0);
    CHECK(session.state<Sum>(2).sum() == 0);
  }
  SECTION("it stays where it is asked for no less") {
    CHECK(session.go_back(6, both) == 6);
    CHECK(session.go_back(9, both) == 6);
    CHECK(session.state<Sum>(2).sum() == 136);
  }
  CHECK(both[0].length() == 3);
  CHECK(both[0].state<Sum>(2).sum() == 6);
}

}  // namespace
}  // namespace halfbyte::models

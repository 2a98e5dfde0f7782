// Sessions stored and taken back: what they have, how they go on, what they let go; and stored tensors that are not a
// session's.
#include "models/modules/stored_state.h"

#include <map>

#include <ATen/ATen.h>

#include <halfbyte/error.h>

#include "models/modules/key_value_cache.h"
#include "models/modules/recurrent_state.h"
#include "models/sessions/session.h"
#include "tests/catch.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kWindow = 100;

// Layers that can be cut anywhere, to their window, and nowhere.
Session make_session() {
  std::vector<std::unique_ptr<LayerState>> layers;
  layers.push_back(std::make_unique<KeyValueCache>(KeyValueCache::Shape{2, 4, 3}, std::nullopt, at::kCPU));
  layers.push_back(nullptr);
  const KeyValueCache::Shape window{1, 2, 0, {.window = kWindow}};
  layers.push_back(std::make_unique<KeyValueCache>(window, at::kHalf, at::kCPU));
  layers.push_back(std::make_unique<RecurrentState>(std::vector<RecurrentState::Shape>{{2}, {2, 3}}, at::kCPU));
  return Session(std::move(layers));
}

void read(Session& session, std::int64_t tokens) {
  const at::Tensor at = at::arange(tokens).add(session.length()).to(at::kFloat).view({tokens, 1, 1});
  session.state<KeyValueCache>(0).store(session.length(), at.expand({tokens, 2, 4}), at.neg().expand({tokens, 2, 3}));
  session.state<KeyValueCache>(2).store(session.length(), at.expand({tokens, 1, 2}), {});
  const auto last = static_cast<double>(session.length() + tokens);
  session.state<RecurrentState>(3).keep(0, at::full({2}, last, at::kFloat));
  session.state<RecurrentState>(3).keep(1, at::full({2, 3}, -last, at::kFloat));
  session.commit(tokens);
}

class Stored final : public StateSource {
 public:
  void put(const std::string& prefix, const std::vector<StateTensor>& tensors) {
    for (const StateTensor& one : tensors) {
      const at::Tensor values = one.values();
      CHECK(values.is_contiguous());
      CHECK(values.sizes() == at::IntArrayRef(one.shape));
      CHECK(values.scalar_type() == one.dtype);
      tensors_[prefix + one.name] = values.clone();
    }
  }
  StoredEntry entry(const std::string& name) const override {
    if (!tensors_.contains(name)) refuse(name, "is missing");
    return {tensors_.at(name).sizes().vec(), tensors_.at(name).scalar_type()};
  }
  at::Tensor read(const std::string& name) const override { return tensors_.at(name); }
  [[noreturn]] void refuse(const std::string& name, const std::string& problem) const override {
    throw Error(ErrorCode::kCorrupt, name + " " + problem);
  }
  at::Tensor& operator[](const std::string& name) { return tensors_[name]; }
  std::size_t size() const { return tensors_.size(); }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

Stored stored(const Session& session) {
  Stored out;
  out.put("", session.tensors());
  return out;
}

void check_equal(const Session& session, const Session& wanted) {
  REQUIRE(session.length() == wanted.length());
  CHECK(session.least() == wanted.least());
  CHECK(session.bytes() == wanted.bytes());
  const auto tensors = session.tensors(), others = wanted.tensors();
  REQUIRE(tensors.size() == others.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    INFO(tensors[i].name);
    CHECK(tensors[i].name == others[i].name);
    CHECK(at::equal(tensors[i].values(), others[i].values()));
  }
}

TEST_CASE("a session that is stored and taken back is the same, and goes on alike", "[session][stored]") {
  for (const std::int64_t length : {1, 63, 64, 65, 100, 400}) {
    INFO(length << " tokens");
    Session session = make_session();
    for (std::int64_t i = 0; i < length; ++i) read(session, 1);
    const Stored file = stored(session);
    CHECK(file.size() == 5);
    Session again = make_session();
    again.restore(length, 0, file);
    check_equal(again, session);
    for (const std::int64_t more : {1, 70}) {
      read(session, more);
      read(again, more);
      check_equal(again, session);
    }
  }
}

TEST_CASE("an earlier state is stored without what cutting a later one gives", "[session][stored]") {
  Session session = make_session();
  read(session, 30);
  const Session earlier = session.fork();
  read(session, 50);
  Stored file = stored(session);
  file.put("1.", earlier.tensors(&session));
  CHECK(file.size() == 5 + 2);  // the recurrent state's parts
  Session whole = make_session(), again = make_session();
  whole.restore(80, 0, file);
  again.restore(30, 0, file, "1.", &whole);
  check_equal(whole, session);
  check_equal(again, earlier);
  // Turned for another length, it is not the beginning of the other.
  session.expect(1000);
  CHECK(earlier.tensors(&session).size() == 5);
}

TEST_CASE("stored tensors that a session would not have are refused by name", "[session][stored]") {
  struct Row {
    const char* name;
    at::Tensor other;
    const char* message;
  };
  const at::Tensor none;
  const Row rows[] = {
      {"layers.0.keys", none, "layers.0.keys is missing"},
      {"layers.0.keys", at::zeros({2, 400, 5}), "this model keeps Float [2, 400, 4]"},
      {"layers.0.keys", at::zeros({3, 400, 4}), "layers.0.keys is"},
      {"layers.0.keys", at::zeros({400}), "layers.0.keys has not those tokens of 400"},
      {"layers.0.keys", at::zeros({2, 336, 4}), "layers.0.keys has not those tokens"},  // all are seen
      {"layers.0.keys", at::zeros({2, 464, 4}), "layers.0.keys has not those tokens"},
      {"layers.0.keys", at::zeros({2, 0, 4}), "layers.0.keys has not those tokens"},
      {"layers.0.keys", at::zeros({2, 400, 4}, at::kLong), "layers.0.keys is of whole numbers"},
      {"layers.0.values", at::zeros({2, 399, 3}), "layers.0.values is"},
      {"layers.2.keys", at::zeros({1, 80, 2}, at::kHalf), "layers.2.keys has not those tokens"},   // too few
      {"layers.2.keys", at::zeros({1, 207, 2}, at::kHalf), "layers.2.keys has not those tokens"},  // no block's begin
      {"layers.2.keys", at::zeros({1, 208, 2}), "this model keeps Half"},
      {"layers.3.state.0", at::zeros({3}), "layers.3.state.0 is"},
      {"layers.3.state.1", at::zeros({2, 3}, at::kDouble), "layers.3.state.1 is"},
  };
  Session session = make_session();
  for (std::int64_t i = 0; i < 400; ++i) read(session, 1);
  for (const Row& row : rows) {
    INFO(row.name << ": " << row.message);
    Stored file;
    for (const StateTensor& one : session.tensors()) {
      if (one.name != row.name) file.put("", {one});
    }
    if (row.other.defined()) file[row.name] = row.other;
    Session again = make_session();
    CHECK_THROWS_WITH(again.restore(400, 0, file), Catch::Contains(row.message));
  }
}

TEST_CASE("keys and values in 8 bits are stored as codes, and other shapes of them are refused", "[session][stored]") {
  const auto make = [] {
    std::vector<std::unique_ptr<LayerState>> layers;
    layers.push_back(
        std::make_unique<KeyValueCache>(KeyValueCache::Shape{2, 64, 64}, at::kHalf, at::kCPU, KeyValues::kInt8));
    return Session(std::move(layers));
  };
  Session session = make();
  for (std::int64_t done = 0; done < 100; done += 50) {
    session.state<KeyValueCache>(0).store(done, at::randn({50, 2, 64}), at::randn({50, 2, 64}));
    session.commit(50);
  }
  Stored file = stored(session);
  Session again = make();
  again.restore(100, 0, file);
  check_equal(again, session);
  const at::Tensor codes = file["layers.0.keys"];
  const at::Tensor others[] = {codes.narrow(0, 0, 1),   codes.view({-1}),    codes.narrow(1, 1, codes.size(1) - 1),
                               at::cat({codes, codes}), codes.to(at::kHalf), codes.narrow(0, 0, 0)};
  for (const at::Tensor& other : others) {
    file["layers.0.keys"] = other;
    Session refused = make();
    CHECK_THROWS_WITH(refused.restore(100, 0, file), Catch::Contains("layers.0.keys"));
  }
}

}  // namespace
}  // namespace halfbyte::models

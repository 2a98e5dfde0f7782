// What ranks that train together give each other.
#include "models/training/ranks.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tests/models/parallel/forwarding_group.h"
#include "tests/models/parallel/ranks.h"

namespace halfbyte {
namespace {

using training::Share;

at::Tensor parameter(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return at::ones(shape, at::TensorOptions(type).requires_grad(true));
}

bool are_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

TEST_CASE("ranks take neighbours, all of them once and evenly", "[ranks]") {
  for (const int size : {2, 3, 5}) {
    std::vector<Share> shares(static_cast<std::size_t>(size));
    for (const std::size_t count : {0u, 1u, 2u, 5u, 17u}) {
      tests::Ranks(size).run([&](const std::shared_ptr<Group>& group) {
        shares[static_cast<std::size_t>(group->rank())] = training::share_of(count, group.get());
      });
      std::size_t at = 0;
      for (const Share& each : shares) {
        CHECK(each.begin == at);
        CHECK(each.end - each.begin <= count / static_cast<std::size_t>(size) + 1);
        at = each.end;
      }
      CHECK(at == count);
    }
  }
  CHECK(training::share_of(7, nullptr).end == 7);
}

TEST_CASE("gradients are added whoever has them, and what nobody has stays away", "[ranks]") {
  constexpr std::int64_t kLarge = (std::int64_t{1} << 20) + 77;  // more than a message
  for (const int size : {2, 3}) {
    std::vector<std::vector<at::Tensor>> all(static_cast<std::size_t>(size));
    tests::Ranks(size).run([&](const std::shared_ptr<Group>& group) {
      const int rank = group->rank();
      std::vector<at::Tensor>& own = all[static_cast<std::size_t>(rank)];
      own = {parameter({3}), parameter({2, 2}), parameter({5}), parameter({kLarge}), parameter({4}, at::kBFloat16)};
      own[0].mutable_grad() = at::full({3}, 1.0 + rank);
      if (rank == 1) own[1].mutable_grad() = at::arange(4.0).view({2, 2}).t();  // not contiguous
      own[3].mutable_grad() = at::arange(kLarge, at::kFloat) * (rank + 1);
      own[4].mutable_grad() = at::full({4}, 0.5, at::kBFloat16);
      training::sum_gradients(*group, own);
    });
    const double ranks = size, sum = ranks * (ranks + 1) / 2;
    for (const std::vector<at::Tensor>& own : all) {
      CHECK(own[0].grad().equal(at::full({3}, sum)));
      CHECK(own[1].grad().equal(at::arange(4.0).view({2, 2}).t()));
      CHECK_FALSE(own[2].grad().defined());
      CHECK(own[3].grad().allclose(at::arange(kLarge, at::kFloat) * sum, 1e-6));
      CHECK(are_same_bits(own[3].grad(), all[0][3].grad()));
      CHECK(own[4].grad().equal(at::full({4}, 0.5 * ranks, at::kBFloat16)));
    }
  }
}

TEST_CASE("what the first rank has gets to all, bit by bit", "[ranks]") {
  const std::vector<float> odd = {-0.0f,     0.0f,           std::numeric_limits<float>::denorm_min(),
                                  -INFINITY, std::nanf("7"), 1e-30f};
  const std::vector<at::Tensor> wanted = {at::tensor(odd), at::arange(-100, 101).to(at::kChar),
                                          at::tensor({1, -5}, at::kLong), at::rand({3, 700'001}), at::full({}, 2.5)};
  std::vector<std::vector<at::Tensor>> all(3);
  std::vector<std::string> texts(3);
  tests::Ranks(3).run([&](const std::shared_ptr<Group>& group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    for (const at::Tensor& one : wanted) all[rank].push_back(rank == 0 ? one.clone() : at::ones_like(one));
    training::take_from_first(*group, all[rank]);
    texts[rank] = training::taken_from_first(*group, rank == 0 ? "odd" : "something longer than that");
    training::check_same_values(*group, all[rank]);
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(are_same_bits(all[rank][i], wanted[i]));
    CHECK(texts[rank] == "odd");
  }
}

TEST_CASE("one rank's other parameters are found in all", "[ranks]") {
  std::vector<std::string> said(3);
  tests::Ranks(3).run([&](const std::shared_ptr<Group>& group) {
    std::vector<at::Tensor> own = {at::zeros({4}), at::zeros({2})};
    if (group->rank() == 2) own[1][1] = 1e-20;
    try {
      training::check_same_values(*group, own);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) CHECK(each.starts_with("rank 2 has other parameters than rank 0"));
}

TEST_CASE("losses are added in the order of ranks, and who is stopped stops all", "[ranks]") {
  std::vector<double> sums(3);
  std::vector<std::optional<ErrorCode>> ends(3);
  tests::Ranks(3).run([&](const std::shared_ptr<Group>& group) {
    const int rank = group->rank();
    sums[static_cast<std::size_t>(rank)] = training::summed(group.get(), [&] { return rank == 0 ? 1e17 : 1.0 + rank; });
    try {
      training::summed(group.get(), [&]() -> double {
        if (rank == 1) throw Error(ErrorCode::kInterrupted, "stopped");
        return 1;
      });
    } catch (const Error& error) {
      ends[static_cast<std::size_t>(rank)] = error.code();
    }
  });
  for (const std::optional<ErrorCode>& end : ends) CHECK(end == ErrorCode::kInterrupted);
  for (const double sum : sums) CHECK(sum == 1e17 + 2.0 + 3.0);
  CHECK(training::summed(nullptr, [] { return 2.5; }) == 2.5);
}

namespace {

// Counts what others ask for meanwhile.
class Counted : public tests::ForwardingGroup {
 public:
  Counted(std::shared_ptr<Group> group, std::atomic<int>& count) : ForwardingGroup(std::move(group)), count_(count) {}
  std::vector<std::string> gather(const std::string& text) override {
    const auto out = ForwardingGroup::gather(text);
    ++count_;
    count_.notify_all();
    return out;
  }

 private:
  std::atomic<int>& count_;
};

}  // namespace

TEST_CASE("what the first rank does alone the others wait for, longer than for one call, and fail as it does",
          "[ranks]") {
  std::vector<std::string> said(3);
  std::atomic<int> calls = 0, works = 0;
  tests::Ranks(3).run([&](const std::shared_ptr<Group>& joined) {
    Counted group(joined, calls);
    training::by_first(&group, [&] {
      for (int seen = 0; (seen = calls.load()) < 9;) calls.wait(seen);  // three calls of three ranks
      ++works;
    });
    if (works != 1) throw std::runtime_error("not waited for");
    try {
      training::by_first(&group, [&] { throw Error(ErrorCode::kNotFound, "what is not there"); });
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) said[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  for (const std::string& each : said) CHECK(each == "what is not there");
  training::by_first(nullptr, [&] { ++works; });
  CHECK(works == 2);
}

}  // namespace halfbyte

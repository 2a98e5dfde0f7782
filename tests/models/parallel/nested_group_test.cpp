#include <halfbyte/nested_group.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tests/models/parallel/ranks.h"

namespace halfbyte {
namespace {

constexpr int kMachines = 2, kLocal = 3, kAll = kMachines * kLocal;

// A network's group, whose part of first ranks is one by memory of their own.
class Network : public Group {
 public:
  Network(std::shared_ptr<Group> all, const tests::Ranks& firsts) : all_(std::move(all)), firsts_(firsts) {}
  int rank() const noexcept override { return all_->rank(); }
  int size() const noexcept override { return all_->size(); }
  void sum(std::span<float>) override { throw std::logic_error("ranks of one machine add by memory"); }
  std::vector<std::string> gather(const std::string&) override { throw std::logic_error("likewise"); }
  std::shared_ptr<Group> part(const std::vector<int>& ranks) override {
    if (ranks != std::vector<int>{0, kLocal}) throw std::logic_error("other ranks");
    return firsts_.join(rank() / kLocal);
  }

 private:
  std::shared_ptr<Group> all_;
  const tests::Ranks& firsts_;
};

}  // namespace

TEST_CASE("nested groups: sums and texts of all ranks of all machines", "[ranks]") {
  const tests::Ranks firsts(kMachines), one(kLocal), two(kLocal);
  std::vector<std::vector<float>> found(kAll);
  tests::Ranks(kAll).run([&](const std::shared_ptr<Group>& all) {
    const int rank = all->rank();
    const auto group =
        nested_group(std::make_shared<Network>(all, firsts), (rank < kLocal ? one : two).join(rank % kLocal));
    std::vector<float> values(1000);
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = 0.1f * static_cast<float>(i) + static_cast<float>(rank + round);
      group->sum(values);
    }
    found[static_cast<std::size_t>(rank)] = values;
    const std::string rest{" \"\n\0\xff 7 ", 8};  // any bytes
    const auto said = group->gather("rank " + std::to_string(rank) + rest);
    for (int i = 0; i < kAll; ++i) {
      if (said.at(static_cast<std::size_t>(i)) != "rank " + std::to_string(i) + rest)
        throw std::runtime_error("other texts");
    }
  });
  for (const auto& each : found) CHECK(each == found[0]);
  CHECK(found[0][0] == 0 + 1 + 2 + 3 + 4 + 5 + 6 * 4);
}

TEST_CASE("nested groups: ranks that do not lie machine by machine are refused", "[ranks]") {
  const tests::Ranks all(4), local(2);
  CHECK_THROWS_AS(nested_group(all.join(1), local.join(0)), Error);
}

}  // namespace halfbyte

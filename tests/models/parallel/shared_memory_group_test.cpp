#include <halfbyte/shared_memory_group.h>

#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tests/models/parallel/ranks.h"

namespace halfbyte {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("groups: sums of any length, the same bits in each rank", "[ranks]") {
  for (const int size : {2, 3, 5}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{65'536}, std::size_t{200'003}}) {
      INFO(size << " ranks, " << count << " values");
      std::vector<std::vector<float>> found(static_cast<std::size_t>(size));
      tests::Ranks(size).run([&](const std::shared_ptr<Group>& group) {
        std::vector<float> values(count);
        for (int round = 0; round < 20; ++round) {
          for (std::size_t i = 0; i < count; ++i)
            values[i] = static_cast<float>((i % 1000) * 3 + static_cast<std::size_t>(round)) +
                        0.1f * static_cast<float>(group->rank());
          group->sum(values);
        }
        found[static_cast<std::size_t>(group->rank())] = values;
      });
      for (const auto& each : found) CHECK(each == found[0]);
      float wanted = 0;
      for (int rank = 0; rank < size; ++rank) wanted += 19.0f + 0.1f * static_cast<float>(rank);
      CHECK(found[0][0] == wanted);
    }
  }
}

TEST_CASE("groups: texts of all ranks", "[ranks]") {
  tests::Ranks(3).run([](const std::shared_ptr<Group>& group) {
    const auto said = group->gather("I am " + std::to_string(group->rank()));
    if (said != std::vector<std::string>{"I am 0", "I am 1", "I am 2"}) throw std::runtime_error("other texts");
  });
}

TEST_CASE("groups: a rank that has gone, never came or is elsewhere is named", "[ranks]") {
  const tests::Ranks ranks(2);
  const SharedMemoryOptions hasty{.timeout = std::chrono::milliseconds(100)};
  const auto first = ranks.join(0, hasty);
  std::vector<float> values(4);
  CHECK(error_of([&] { first->sum(values); }).find("rank 1 of 2 has not joined") != std::string::npos);
  const tests::Ranks others(2);
  const auto left = others.join(0);
  { const auto second = others.join(1); }
  CHECK(error_of([&] {
          left->gather("x");
        }).find("rank 1 of 2 (process " + std::to_string(::getpid()) + ") has ended") != std::string::npos);
}

TEST_CASE("groups: ranks at different calls are told so", "[ranks]") {
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    std::vector<float> values(group->rank() == 0 ? 4 : 5);
    said[static_cast<std::size_t>(group->rank())] = error_of([&] { group->sum(values); });
    group->gather("");  // so that neither leaves before the other has looked
  });
  CHECK(said[0].find("is at another step") != std::string::npos);
  CHECK(said[1].find("is at another step") != std::string::npos);
}

TEST_CASE("groups: messages of any length, to each rank in their order", "[ranks]") {
  for (const std::size_t count : {std::size_t{1}, std::size_t{65'536}, std::size_t{1'000'003}}) {
    INFO(count << " values");
    std::vector<std::vector<float>> found(3);
    tests::Ranks(3).run([&](const std::shared_ptr<Group>& group) {
      constexpr int kRounds = 6;
      if (group->rank() == 0) {
        for (int round = 0; round < kRounds; ++round) {
          std::vector<float> values(count, static_cast<float>(round));
          for (const int to : {1, 2}) {
            values.back() = static_cast<float>(100 * to + round);
            group->send(values, to);
          }
        }
        return;
      }
      for (int round = 0; round < kRounds; ++round) {
        std::vector<float> values(count);
        group->receive(values, 0);
        if (count > 1 && values.front() != static_cast<float>(round)) throw std::runtime_error("another's values");
        found[static_cast<std::size_t>(group->rank())].push_back(values.back());
      }
    });
    CHECK(found[1] == std::vector<float>{100, 101, 102, 103, 104, 105});
    CHECK(found[2] == std::vector<float>{200, 201, 202, 203, 204, 205});
  }
}

TEST_CASE("groups: what was sent is there when its sender has gone, and nothing else", "[ranks]") {
  const tests::Ranks ranks(2);
  const auto first = ranks.join(0);
  std::vector<float> values(3);
  {
    const auto second = ranks.join(1);
    second->send(std::vector<float>{1, 2, 3}, 0);
  }
  first->receive(values, 1);
  CHECK(values == std::vector<float>{1, 2, 3});
  CHECK(error_of([&] { first->receive(values, 1); }).find("rank 1 of 2 (process ") == 0);
  CHECK(error_of([&] { first->send(values, 0); }).find("has nothing to give to or take from rank 0") !=
        std::string::npos);
}

TEST_CASE("groups: more than fits is not sent to a rank that takes nothing", "[ranks]") {
  const tests::Ranks ranks(2);
  const auto first = ranks.join(0, {.timeout = std::chrono::milliseconds(100)});
  const auto second = ranks.join(1);
  const std::vector<float> values(65'536);
  const std::string said = error_of([&] {
    for (int i = 0; i < 100; ++i) first->send(values, 1);
  });
  CHECK(said.find("rank 1 of 2") == 0);
  CHECK(said.find("has not come on") != std::string::npos);
}

TEST_CASE("groups: another length than was sent is told so", "[ranks]") {
  const tests::Ranks ranks(2);
  const auto first = ranks.join(0), second = ranks.join(1);
  second->send(std::vector<float>(3), 0);
  std::vector<float> values(4);
  CHECK(error_of([&] { first->receive(values, 1); }).find("is at another step") != std::string::npos);
}

TEST_CASE("groups: parts have sums, texts and messages of their own", "[ranks]") {
  std::vector<float> sums(5), all(5);
  std::vector<std::string> texts(5);
  tests::Ranks(5).run([&](const std::shared_ptr<Group>& group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    const std::vector<int> own = rank % 2 == 0 ? std::vector<int>{0, 2, 4} : std::vector<int>{1, 3};
    const auto part = group->part(own);
    if (group->part(own) != part) throw std::runtime_error("another part of the same ranks");
    for (int round = 0; round < 50; ++round) {
      std::vector<float> value{static_cast<float>(group->rank())};
      part->sum(value);
      sums[rank] = value[0];
      if (round % 10 != 9) continue;
      group->sum(value);
      all[rank] = value[0];
    }
    for (const std::string& text : part->gather(std::to_string(group->rank()))) texts[rank] += text;
    std::vector<float> value{static_cast<float>(10 + group->rank())};
    if (part->rank() == 0) part->send(value, 1);
    if (part->rank() == 1) part->receive(value, 0);
    if (value[0] != static_cast<float>(10 + (part->rank() == 1 ? own[0] : group->rank())))
      throw std::runtime_error("another's message");
    group->gather("");  // so that none leaves before the others
  });
  CHECK(sums == std::vector<float>{6, 4, 6, 4, 6});
  CHECK(all == std::vector<float>(5, 26));
  CHECK(texts == std::vector<std::string>{"024", "13", "024", "13", "024"});
}

TEST_CASE("groups: a part names ranks as the group does, and is refused where it is none", "[ranks]") {
  const tests::Ranks ranks(4);
  const auto fourth = ranks.join(3, {.timeout = std::chrono::milliseconds(100)});
  const auto part = fourth->part({2, 3});
  CHECK(part->rank() == 1);
  CHECK(part->size() == 2);
  std::vector<float> values(1);
  CHECK(error_of([&] { part->sum(values); }).find("rank 2 of 4 has not joined") == 0);
  for (const std::vector<int>& other : {std::vector<int>{1, 3}, std::vector<int>{0, 1}}) {
    CHECK(error_of([&] { fourth->part(other); }).find("rank 3 is in one part of a group") == 0);
    CHECK(error_of([&] { part->part(other); }).find("is in one part of a group") != std::string::npos);
  }
  const auto third = ranks.join(2);
  for (const std::vector<int>& wrong : {std::vector<int>{3, 2}, std::vector<int>{2, 4}, std::vector<int>{0, 1}})
    CHECK(error_of([&] { third->part(wrong); }).find("rank 2 is in one part of a group") == 0);
  const auto alone = ranks.join(0)->part({0});
  values = {7};
  alone->sum(values);
  CHECK(values[0] == 7);
}

TEST_CASE("groups: no rank beyond the last", "[ranks]") {
  const tests::Ranks ranks(2);
  CHECK(error_of([&] { ranks.join(2); }).find("rank 2 of 2 cannot join") != std::string::npos);
  CHECK(error_of([] { join_shared_memory_file(-1, 0, 2); }).find("is not there") != std::string::npos);
}

}  // namespace halfbyte

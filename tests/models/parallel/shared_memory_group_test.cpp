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

TEST_CASE("groups: no rank beyond the last", "[ranks]") {
  const tests::Ranks ranks(2);
  CHECK(error_of([&] { ranks.join(2); }).find("rank 2 of 2 cannot join") != std::string::npos);
  CHECK(error_of([] { join_shared_memory_file(-1, 0, 2); }).find("is not there") != std::string::npos);
}

}  // namespace halfbyte

// What ranks must have in common is compared by one message, and the first difference is named in all of them.
#include "models/parallel/alike.h"

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tests/models/parallel/forwarding_group.h"
#include "tests/models/parallel/ranks.h"

namespace halfbyte {
namespace {

// Adds something to the first that it says.
class Altered : public tests::ForwardingGroup {
 public:
  Altered(std::shared_ptr<Group> group, std::string more) : ForwardingGroup(std::move(group)), more_(std::move(more)) {}
  std::vector<std::string> gather(const std::string& text) override {
    return ForwardingGroup::gather(text + std::exchange(more_, ""));
  }

 private:
  std::string more_;
};

// What each of two ranks says of it; `more`: of the second one's first word.
std::array<std::string, 2> verdicts(const std::vector<std::string>& first, const std::vector<std::string>& second,
                                    const std::string& more = "") {
  std::array<std::string, 2> out;
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& joined) {
    Altered group(joined, joined->rank() == 0 ? "" : more);
    std::string& own = out[static_cast<std::size_t>(group.rank())];
    try {
      check_alike(group, group.rank() == 0 ? first : second, "runs another thing");
    } catch (const Error& error) {
      own = error.what();
    }
  });
  return out;
}

}  // namespace

TEST_CASE("ranks that say the same go on, and the first difference is named in all", "[ranks]") {
  const std::vector<std::string> things = {"checkpoint 12", "threads 4", "batch 2"};
  for (const std::string& each : verdicts(things, things)) CHECK(each.empty());
  for (const std::string& each : verdicts({}, {})) CHECK(each.empty());
  for (const std::string& each : verdicts(things, {"checkpoint 12", "threads 3", "batch 1"}))
    CHECK(each == "rank 1 runs another thing than rank 0: threads 3; there it is threads 4");
  for (const std::string& each : verdicts(things, {"checkpoint 12", "threads 4"}))
    CHECK(each == "rank 1 runs another thing than rank 0: nothing more; there it is batch 2");
  // Other likenesses of the same things, as other builds may make them.
  for (const std::string& each : verdicts(things, things, "of another build"))
    CHECK(each == "a rank runs another thing than rank 0, in what neither says");
  for (const std::string& each : verdicts({"a\nb"}, {"a"})) CHECK(each.find('\n') == std::string::npos);
}

TEST_CASE("a likeness is of all bytes, in their order and number", "[ranks]") {
  const auto of = [](const std::string& text) { return likeness(std::as_bytes(std::span(text))); };
  const std::string text = "0123456789abcdef";
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string part = text.substr(0, length);
    CHECK(of(part) == of(part));
    CHECK(of(part) != of(part + '\0'));
    for (std::size_t i = 0; i < length; ++i) {
      std::string other = part;
      other[i] = static_cast<char>(other[i] ^ 1);
      CHECK(of(other) != of(part));
    }
  }
  CHECK(of("ab") != of("ba"));
  CHECK(likeness_text(of("a")).size() == 16);
}

}  // namespace halfbyte

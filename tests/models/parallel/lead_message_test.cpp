// What a leading rank says, said and read again; and what no rank says.
#include "models/parallel/lead_message.h"

#include <string>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"

namespace halfbyte::models {
namespace {

LeadMessage full() {
  LeadMessage out{.work = LedWork::kStep, .kind = quant::RowsKind::kFew};
  out.changes = {
      {SessionAct::kMake, 1}, {SessionAct::kFork, 300, 1}, {SessionAct::kCut, 1, 70'000}, {SessionAct::kDrop, 1}};
  out.rows = {{300, 2, 512}, {std::uint64_t{1} << 40, 1, 0}};
  out.tokens = {0, 127, 128'255};
  out.count = 5;
  out.dtype = 15;
  out.given = {{std::uint64_t{1} << 33, 17}};
  out.forgotten = {0, 12'345};
  return out;
}

}  // namespace

TEST_CASE("lead message: read as it was said", "[ranks]") {
  for (const LeadMessage& message : {LeadMessage(), LeadMessage{.work = LedWork::kEnd}, full()})
    CHECK(lead_message(text_of(message)) == message);
  LeadMessage step{.work = LedWork::kStep, .rows = {{1, 1, 40}}, .tokens = {31'999}};
  CHECK(text_of(step).size() < 20);  // of a token that is decoded
}

TEST_CASE("lead message: what is cut short, goes on or counts wrongly is refused", "[ranks]") {
  const std::string text = text_of(full());
  for (std::size_t size = 0; size < text.size(); ++size) CHECK_THROWS_AS(lead_message(text.substr(0, size)), Error);
  CHECK_THROWS_AS(lead_message(text + '\0'), Error);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\x7f', '\xff', '\x05'}) {
      std::string other = text;
      other[at] = byte;
      try {
        lead_message(other);
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kContract);
      }
    }
  }
}

TEST_CASE("session log: sessions are known by name from their making to their end", "[ranks]") {
  const auto log = std::make_shared<SessionLog>();
  {
    SessionTrace first(log);
    first.cut(3);
    SessionTrace other = first.fork();
    CHECK(first.in(*log) == 1);
    CHECK(other.in(SessionLog()) == 0);
    first = std::move(other);  // what it was is gone
    CHECK(first.in(*log) == 2);
    const SessionTrace moved(std::move(first));
  }
  const std::vector<SessionChange> wanted = {{SessionAct::kMake, 1},
                                             {SessionAct::kCut, 1, 3},
                                             {SessionAct::kFork, 2, 1},
                                             {SessionAct::kDrop, 1},
                                             {SessionAct::kDrop, 2}};
  CHECK(log->take(2) == std::vector(wanted.begin(), wanted.begin() + 2));
  CHECK(log->take(9) == std::vector(wanted.begin() + 2, wanted.end()));
  log->close();
  const SessionTrace late(log);
  CHECK(log->take(9).empty());
}

}  // namespace halfbyte::models

#include "convert/calibrate/meeting.h"

#include <functional>
#include <thread>

#include "convert/output/work_parts.h"
#include "tests/catch.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::calibrate::Meeting;

namespace {

using Work = std::function<void(Meeting&)>;

// What each part's error says; empty: none.
std::vector<std::string> run_parts(const Scratch& scratch, const std::vector<Work>& parts,
                                   std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  std::vector<std::string> errors(parts.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        const convert::WorkPart part{static_cast<int>(i) + 1, static_cast<int>(parts.size())};
        convert::make_part_folder(convert::part_folder(scratch.path(), part));
        Meeting meeting(scratch.path(), {.part = part, .timeout = timeout});
        parts[i](meeting);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  threads.clear();
  return errors;
}

void give(Meeting& meeting, const std::string& text) { meeting.give(std::as_bytes(std::span(text))); }

std::string given(Meeting& meeting, int part) {
  const files::InputFile& file = meeting.given(part);
  std::string out(file.size_bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

TEST_CASE("meeting: what each part says and gives at each step", "[calibrate][parts]") {
  const Scratch scratch;
  std::vector<std::vector<std::string>> heard(3);
  const auto work = [&](Meeting& meeting) {
    const std::string own = std::to_string(meeting.index());
    for (int step = 0; step < 20; ++step) {
      const std::string at = "step " + std::to_string(step) + " of ";
      give(meeting, at);
      if (step % 3 != meeting.index()) give(meeting, own);  // of other lengths by turns
      const std::vector<std::string> said = meeting.meet(at + own);
      for (int part = 0; part < 3; ++part) {
        const std::string name = std::to_string(part);
        auto& all = heard[static_cast<std::size_t>(meeting.index())];
        if (said.at(static_cast<std::size_t>(part)) != at + name) all.push_back(said[static_cast<std::size_t>(part)]);
        const std::string wanted = step % 3 != part ? at + name : at;
        if (given(meeting, part) != wanted) all.push_back(given(meeting, part));
      }
    }
  };
  for (int again = 0; again < 3; ++again) {  // what an earlier run said is not taken for this one's words
    CHECK(run_parts(scratch, {work, work, work}) == std::vector<std::string>(3));
    CHECK(heard == std::vector<std::vector<std::string>>(3));
  }
}

TEST_CASE("meeting: a part that ends is missed at once, whatever the timeout", "[calibrate][parts]") {
  const Scratch scratch;
  const int steps = GENERATE(1, 2, 5);
  const auto work = [](int count) {
    return [count](Meeting& meeting) {
      for (int step = 0; step < count; ++step) meeting.meet();
    };
  };
  const auto errors = run_parts(scratch, {work(7), work(steps)});
  CHECK(errors[1].empty());
  CHECK(errors[0].find("part 2 of 2 ended before it was done") != std::string::npos);
}

TEST_CASE("meeting: who is done last is not missed by the others", "[calibrate][parts]") {
  const Scratch scratch;
  const auto work = [](Meeting& meeting) { meeting.meet("the last words"); };
  for (int i = 0; i < 20; ++i) CHECK(run_parts(scratch, {work, work}) == std::vector<std::string>(2));
}

TEST_CASE("meeting: a part that does not come is waited for until the timeout", "[calibrate][parts]") {
  const Scratch scratch;
  convert::make_part_folder(convert::part_folder(scratch.path(), {1, 2}));
  Meeting alone(scratch.path(), {.part = {1, 2}, .timeout = std::chrono::milliseconds(1)});
  check_error(ErrorCode::kIo, {"part 2 of 2 did not come within", "run at the same time"}, [&] { alone.meet(); });
  check_error(ErrorCode::kAlreadyExists, {"alive"}, [&] { Meeting(scratch.path(), {.part = {1, 2}}); });
}

TEST_CASE("meeting: waiting ends when it is to stop", "[calibrate][parts]") {
  const Scratch scratch;
  convert::make_part_folder(convert::part_folder(scratch.path(), {1, 2}));
  std::stop_source stop;
  stop.request_stop();
  Meeting alone(scratch.path(), {.part = {1, 2}, .stop = stop.get_token()});
  check_error(ErrorCode::kInterrupted, {"stopped"}, [&] { alone.meet(); });
}

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

// The piece that begins there.
std::string given(Meeting& meeting, int part, std::uint64_t begin) {
  std::string out(meeting.size_of(part, begin), '\0');
  meeting.read(part, begin, std::as_writable_bytes(std::span(out)));
  return out;
}

std::filesystem::path folder_of(const Scratch& scratch, int part, int count) {
  return convert::part_folder(scratch.path(), {part, count}) / convert::kPartCalibration;
}

// Of two parts, without a thread of its own.
std::unique_ptr<Meeting> one_of_two(const Scratch& scratch, int part,
                                    std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  convert::make_part_folder(convert::part_folder(scratch.path(), {part, 2}));
  return std::make_unique<Meeting>(scratch.path(), Meeting::Options{.part = {part, 2}, .timeout = timeout});
}

// Whether the first of two says that it has heard the other.
bool has_heard(const Scratch& scratch) {
  const std::string said = read_text(folder_of(scratch, 1, 2) / convert::kSaid);
  const std::string_view before = "\"heard\":[\"\",\"";
  const std::size_t found = said.find(before);
  return found != std::string::npos && said.substr(found + before.size(), 1) != "\"";
}

}  // namespace

TEST_CASE("meeting: what each part says and gives at each step", "[calibrate][parts]") {
  const Scratch scratch;
  std::vector<std::vector<std::string>> heard(3);
  const int steps = GENERATE(1, 20);
  const auto work = [&](const std::string& run, Meeting& meeting) {
    const std::string own = std::to_string(meeting.index());
    for (int step = 0; step < steps; ++step) {
      const std::string at = "step " + std::to_string(step) + " of " + run + " of ";
      give(meeting, at);
      if (step % 3 != meeting.index()) give(meeting, own);  // of other lengths by turns
      const std::vector<std::string> said = meeting.meet(at + own);
      for (int part = 0; part < 3; ++part) {
        const std::string name = std::to_string(part);
        auto& all = heard[static_cast<std::size_t>(meeting.index())];
        if (said.at(static_cast<std::size_t>(part)) != at + name) all.push_back(said[static_cast<std::size_t>(part)]);
        const std::string found = given(meeting, part, 0) + (step % 3 != part ? given(meeting, part, at.size()) : "");
        if (found != (step % 3 != part ? at + name : at)) all.push_back(found);
      }
    }
  };
  for (const std::string run : {"one", "other", "third"}) {  // what an earlier one said is not taken for its words
    const Work of_run = [&](Meeting& meeting) { work(run, meeting); };
    CHECK(run_parts(scratch, {of_run, of_run, of_run}) == std::vector<std::string>(3));
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

TEST_CASE("meeting: a part that ends before it heard the others is missed too", "[calibrate][parts]") {
  const Scratch scratch;
  std::unique_ptr<Meeting> one = one_of_two(scratch, 1), gone = one_of_two(scratch, 2);
  std::string error;
  {
    const std::jthread waiting([&] {
      try {
        one->meet();
      } catch (const std::exception& found) {
        error = found.what();
      }
    });
    while (!has_heard(scratch)) std::this_thread::yield();
    gone.reset();
  }
  CHECK(error.find("part 2 of 2 ended before it was done") != std::string::npos);
}

TEST_CASE("meeting: a part that begins again is another, but for the first step", "[calibrate][parts]") {
  const Scratch scratch;
  std::unique_ptr<Meeting> one = one_of_two(scratch, 1), other = one_of_two(scratch, 2);
  other = nullptr;
  other = one_of_two(scratch, 2);
  {
    const std::jthread meeting([&] { other->meet("of the second run"); });
    CHECK(one->meet().at(1) == "of the second run");
  }
  other = nullptr;
  other = one_of_two(scratch, 2);
  check_error(ErrorCode::kIo, {"part 2 of 2 ended and began again"}, [&] { one->meet(); });
}

TEST_CASE("meeting: a part that lives and says nothing is given up after the timeout", "[calibrate][parts]") {
  const Scratch scratch;
  SECTION("before it has said anything") {
    std::unique_ptr<Meeting> one = one_of_two(scratch, 1, std::chrono::milliseconds(20));
    const auto folder = folder_of(scratch, 2, 2);
    convert::make_part_folder(folder.parent_path());
    convert::make_part_folder(folder);
    const auto alive = files::DirectoryLock::of_file(folder / "alive", files::DirectoryLock::Sharing::kSole);
    check_error(ErrorCode::kIo, {"part 2 of 2 did not come within"}, [&] { one->meet(); });
  }
  SECTION("after a step") {
    std::unique_ptr<Meeting> one = one_of_two(scratch, 1, std::chrono::seconds(1)), other = one_of_two(scratch, 2);
    {
      const std::jthread meeting([&] { other->meet(); });
      one->meet();
    }
    check_error(ErrorCode::kIo, {"part 2 of 2 gave no sign for 1 s"}, [&] { one->meet(); });
  }
}

TEST_CASE("meeting: what a part of an earlier run said is not taken for this one's words", "[calibrate][parts]") {
  const Scratch scratch;
  const auto work = [](Meeting& meeting) { meeting.meet("earlier"); };
  CHECK(run_parts(scratch, {work, work}) == std::vector<std::string>(2));
  std::unique_ptr<Meeting> one = one_of_two(scratch, 1);
  std::string heard;
  {
    const std::jthread meeting([&] { heard = one->meet().at(1); });
    while (!has_heard(scratch)) std::this_thread::yield();
    one_of_two(scratch, 2)->meet("now");
  }
  CHECK(heard == "now");
}

TEST_CASE("meeting: a part that says that it goes on is not given up, however short the timeout",
          "[calibrate][parts]") {
  const Scratch scratch;
  const auto timeout = std::chrono::seconds(2);
  std::unique_ptr<Meeting> one = one_of_two(scratch, 1, timeout), other = one_of_two(scratch, 2, timeout);
  const std::jthread meeting([&] {
    for (int beats = 0; beats < 5; ++beats) {  // a quarter of the timeout each
      const std::string before = read_text(folder_of(scratch, 2, 2) / convert::kSaid);
      while (read_text(folder_of(scratch, 2, 2) / convert::kSaid) == before) other->beat();
    }
    other->meet("late");
  });
  CHECK(one->meet().at(1) == "late");
}

TEST_CASE("meeting: a piece of what a part says is not heard, and the whole is", "[calibrate][parts]") {
  const Scratch scratch;
  const int share = GENERATE(0, 10, 50, 99);  // percent
  INFO(share);
  std::unique_ptr<Meeting> one = one_of_two(scratch, 1, std::chrono::milliseconds(20)), other = one_of_two(scratch, 2);
  const auto said = folder_of(scratch, 2, 2) / convert::kSaid;
  std::filesystem::resize_file(said, std::filesystem::file_size(said) * static_cast<std::uintmax_t>(share) / 100);
  check_error(ErrorCode::kIo, {"part 2 of 2 did not come within"}, [&] { one->meet(); });
  one = nullptr;
  one = one_of_two(scratch, 1);
  const std::jthread meeting([&] { other->meet("whole"); });
  CHECK(one->meet().at(1) == "whole");
}

TEST_CASE("meeting: what was given and then lost or changed is refused, naming the file and the part",
          "[calibrate][parts]") {
  const Scratch scratch;
  std::unique_ptr<Meeting> one = one_of_two(scratch, 1), other = one_of_two(scratch, 2);
  const auto file = folder_of(scratch, 2, 2) / "given-1";
  const std::string first(5000, 'a'), second(70, 'b');
  {
    const std::jthread meeting([&] {
      give(*other, first);
      give(*other, second);
      other->meet();
    });
    one->meet();
  }
  const std::string whole = read_text(file);
  const auto refused = [&](const std::string& bytes, const char* what) {
    write_text(file, bytes);
    std::string out(first.size(), '\0');
    check_error(ErrorCode::kCorrupt, {"part-2-of-2/calibration/given-1: is not what part 2 of 2 gave", what},
                [&] { one->read(1, 0, std::as_writable_bytes(std::span(out))); });
  };
  std::string bytes = whole;
  bytes.replace(1000, 4000, 4000, '\0');  // a hole
  SECTION("a hole in a piece") { refused(bytes, "the bytes at 0 differ"); }
  SECTION("its end is gone") { refused(whole.substr(0, whole.size() - 7), "it has"); }
  SECTION("all of it is gone") { refused("", "it has 0 bytes"); }
  bytes = whole;
  bytes[first.size() + second.size() + 20] ^= 1;
  SECTION("its table of hashes") { refused(bytes, "its table of hashes differs"); }
  SECTION("a piece beside the damaged one is good") {
    bytes = whole;
    bytes[first.size()] ^= 1;
    write_text(file, bytes);
    CHECK(given(*one, 1, 0) == first);
    check_error(ErrorCode::kCorrupt, {"the bytes at 5000 differ"}, [&] { given(*one, 1, first.size()); });
    check_error(ErrorCode::kCorrupt, {"nothing begins at 3"}, [&] { given(*one, 1, 3); });
  }
}

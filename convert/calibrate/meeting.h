// Parts of a calibration that several runs share: they run at the same time, and meet step by step through the folder
// that all of them see.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

#include "convert/calibrate/given_file.h"
#include "loader/files/platform.h"

namespace halfbyte::convert::calibrate {

// Each part has, in its folder of NAME.partial: "alive", locked while it runs; "said", which step it has come to, and
// what it says there; "given-0" and "given-1", by turns what it gives the others at a step, with hashes by which they
// know that they have all of it. Between machines that see the folder over NFS, each is closed before it is spoken of,
// and opened anew by who reads it.
class Meeting {
 public:
  struct Options {
    WorkPart part;
    std::chrono::milliseconds timeout = std::chrono::minutes(5);  // for one that gives no sign of life
    std::stop_token stop = {};
  };

  // `work`: NAME.partial, where this part's folder is. Errors: kIo, kNoResources, kAlreadyExists when the part runs
  // already.
  Meeting(const files::fs::path& work, const Options& options);

  int index() const noexcept { return options_.part.index - 1; }  // from 0
  int count() const noexcept { return options_.part.count; }
  // A folder for what this part keeps from one run to the next.
  const files::fs::path& own_folder() const noexcept { return own_; }

  // A piece of what this part gives at the next meeting. Returns where it begins. Errors: kIo, kNoResources,
  // kInterrupted.
  std::uint64_t give(std::span<const std::byte> bytes);
  // Waits until all parts have come here, and returns what each says, by part. Errors: kIo naming a part that is gone,
  // began again or gave no sign for the timeout; kNoResources; kInterrupted.
  std::vector<std::string> meet(const std::string& text = "");
  // Of what a part gave at the last meeting, until the next one: a whole piece, by where it begins, and its size.
  // Errors: kIo; kCorrupt where it is not what the part gave; kInterrupted.
  void read(int part, std::uint64_t begin, std::span<std::byte> out);
  std::uint64_t size_of(int part, std::uint64_t begin) { return given(part).size_of(begin); }
  const files::fs::path& path_of(int part) { return given(part).path(); }
  // Tells the others that this one goes on; called often, it does so once a second, or four times in the timeout.
  void beat();
  // After a meeting whose given nobody reads: removes what this part gave before.
  void remove_given() const;

 private:
  struct Words {
    std::string text;
    GivenMark given;
  };
  struct Said {
    std::string nonce;
    std::vector<std::string> heard;  // by part, the nonce that it knows
    std::uint64_t step = 0;
    Words before, now;  // at the step before, and at this one
    std::string raw;    // all of it
  };

  files::fs::path folder(int part) const;
  files::fs::path file(int part, const char* name) const;
  files::fs::path given_path(int part, std::uint64_t step) const;
  std::string name(int part) const;   // "part 2 of 3"
  std::string named(int part) const;  // with the folder
  void say();
  std::optional<Said> listen(int part) const;
  bool hear(int part, const std::optional<Said>& said);
  bool is_gone(int part);
  Words last_words(int part) const;
  Words wait_for(int part);
  const GivenReader& given(int part);

  files::fs::path work_, own_;
  Options options_;
  std::unique_ptr<files::DirectoryLock> alive_;
  std::chrono::milliseconds beat_;  // from one sign of life to the next
  std::string nonce_;               // of this run: what an earlier one said is not taken for its words
  std::vector<std::string> heard_;  // by part
  std::uint64_t step_ = 0, beats_ = 0;
  std::vector<bool> seen_;  // by part, whether its claim was held once
  Words before_, now_;
  std::chrono::steady_clock::time_point said_at_;
  std::unique_ptr<GivenWriter> giving_;
  std::vector<GivenMark> marks_;                    // by part, of the last meeting
  std::vector<std::unique_ptr<GivenReader>> open_;  // by part
};

}  // namespace halfbyte::convert::calibrate

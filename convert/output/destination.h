// A directory, or a single file, that appears under its name only when it is whole: it is written inside
// "NAME.partial" beside it, synced, and renamed. For everything that writes a checkpoint.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <halfbyte/error.h>

#include "loader/files/manifest.h"
#include "loader/files/platform.h"

namespace halfbyte::convert {

namespace fs = std::filesystem;

// NAME.partial/ is a directory, locked while a process works in it. It holds the coming directory or file as
// "checkpoint", and what is needed to go on after the process was killed ("journal", "calibration", "training", and
// folders of parts: work_parts.h). After
// a replacement "checkpoint" is what was there before, until it is deleted. A NAME.partial that is no directory, or
// holds files of other names, is somebody else's: it is left alone. (A directory that holds a checkpoint's files is
// what an earlier version left of one.)
class Destination {
 public:
  enum class Kind { kDirectory, kFile };
  struct Options {
    bool overwrite = false;
    Kind kind = Kind::kDirectory;
    bool keep_leftovers = false;  // of an earlier run, until start_over(); else they are deleted at once
    bool is_shared = false;       // with others that say so too: nothing is deleted until take_over()
  };

  // Claims NAME.partial. Errors: kAlreadyExists (something of the other kind in the way; NAME without `overwrite`; a
  // directory that is no checkpoint even with it; another process at work; somebody else's NAME.partial), kNotFound (no
  // parent directory), kInvalidArgument (no name; a directory where a file is to be).
  Destination(const fs::path& path, Options options);
  // Removes NAME.partial unless commit() was reached or keep() was called.
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  const fs::path& final_path() const noexcept { return final_; }
  const fs::path& work_path() const noexcept { return work_; }        // NAME.partial
  const fs::path& partial_path() const noexcept { return partial_; }  // what will be renamed
  fs::path calibration_path() const;                                  // what calibration has on the disk meanwhile
  fs::path training_path() const;                                     // what training goes on from
  bool had_leftovers() const noexcept { return had_leftovers_; }      // when it was claimed

  // Deletes what an earlier run left.
  void start_over();
  // The same of what is not gone on with though nobody asked for its end: warnings() says it, and what differs.
  void start_over_instead_of(const std::string& difference);
  // Continues from what an earlier run left: deletes its files in the coming directory that are not `wanted`.
  void remove_all_but(const std::vector<fs::path>& wanted);
  // Of one that is shared: lets go of it and claims it alone. False when others work there, or one of them is done with
  // all of it.
  bool take_over();
  // An error leaves NAME.partial as it is then.
  void keep() noexcept { is_kept_ = true; }
  bool is_kept() const noexcept { return is_kept_; }
  // What a user must hear though all went well: work of an earlier run that was deleted, or what is left and could not
  // be.
  const std::vector<Text>& warnings() const noexcept { return warnings_; }

  // Errors: kNoResources when the disk has less than `needed_bytes` free, not counting what files here have already.
  void check_space(std::uint64_t needed_bytes) const;
  // A small file, written whole and synced.
  void write_file(const fs::path& name, std::string_view text) const;
  // A file from elsewhere under its own name, in pieces, synced. Its record hashes all of it.
  files::FileRecord copy_file(const fs::path& from) const;
  // Runs `work`, whose errors then say what became of what was written.
  void write(const std::function<void()>& work);
  // Runs `work`, which writes what belongs into it, reads back what that made (read_back.h), and commits. Errors: as
  // of write().
  void fill(const std::function<void()>& work);
  // Syncs the directory (a file is synced by whoever wrote it) and gives it its name; what was there under that name is
  // deleted afterwards, with the rest of NAME.partial. Errors: also kIo when it has its name and the folder that it
  // lies in cannot be synced, which the message says.
  void commit();

 private:
  void check_final() const;
  void check_final_file() const;
  void check_work() const;
  void lock_work();
  void lock_all();
  void claim();
  void make_inner() const;
  void remove_if_empty() const noexcept;
  Text remove_work() const;
  Text outlook(ErrorCode code);
  Error with_outlook(const Error& error);
  void sync_names(const fs::path& replaced) const;
  void remove_the_rest(const fs::path& replaced);

  fs::path final_;
  fs::path work_;
  fs::path partial_;
  bool overwrite_;
  Kind kind_;
  bool had_leftovers_ = false;
  bool is_shared_;
  bool is_kept_ = false;
  bool is_committed_ = false;
  std::unique_ptr<files::DirectoryLock> lock_;
  std::unique_ptr<files::DirectoryLock> file_lock_;  // where parts work, perhaps on other machines
  std::vector<Text> warnings_;
};

// PATH, absolute and without a trailing slash. Errors: kInvalidArgument when it cannot name something new.
fs::path destination_path(const fs::path& path);
// NAME.partial for NAME.
fs::path work_path(const fs::path& destination);

// What Destination::training_path() is, for NAME.
fs::path training_path(const fs::path& destination);

// Deletes NAME.partial, unless a process works in it or it is somebody else's; for when NAME itself is known to be
// whole. Returns what a user must hear when it cannot be deleted, else nothing.
Text remove_leftovers(const fs::path& destination);

// Errors: kInvalidArgument when the source and the destination, or NAME.partial, are the same or one lies inside the
// other.
void check_apart(const fs::path& source, const fs::path& destination);

}  // namespace halfbyte::convert

// A directory that appears under its name only when it is whole: it is written inside "NAME.partial" beside it, synced,
// and renamed. For the converter and for synth.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "loader/files/manifest.h"
#include "loader/files/platform.h"

namespace halfbyte::convert {

namespace fs = std::filesystem;

// NAME.partial/ is locked while a process works in it. It holds the coming directory as "checkpoint", and what is
// needed to go on after the process was killed. After a replacement "checkpoint" is the old directory, until it is
// deleted.
class Destination {
 public:
  struct Options {
    bool overwrite = false;
    bool keep_leftovers = false;  // of an earlier run, until start_over(); else they are deleted at once
  };

  // Claims NAME.partial. Errors: kAlreadyExists (a file in the way; a directory without `overwrite`; one that is no
  // checkpoint even with it; another process at work), kNotFound (no parent directory), kInvalidArgument (no name).
  Destination(const fs::path& path, Options options);
  // Removes NAME.partial unless commit() was reached or keep() was called.
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  const fs::path& final_path() const noexcept { return final_; }
  const fs::path& work_path() const noexcept { return work_; }        // NAME.partial
  const fs::path& partial_path() const noexcept { return partial_; }  // what will be renamed
  bool had_leftovers() const noexcept { return had_leftovers_; }      // when it was claimed

  // Deletes what an earlier run left.
  void start_over();
  // Goes on with it: of the coming directory's files only the `wanted` ones stay.
  void remove_all_but(const std::vector<fs::path>& wanted);
  // An error leaves NAME.partial as it is then.
  void keep() noexcept { is_kept_ = true; }
  bool is_kept() const noexcept { return is_kept_; }

  // Errors: kNoResources when the disk has less than `needed_bytes` free, not counting what files here have already.
  void check_space(std::uint64_t needed_bytes) const;
  // A small file, written whole and synced.
  void write_file(const fs::path& name, std::string_view text) const;
  // A file from elsewhere under its own name, in pieces, synced. Its record hashes all of it.
  files::FileRecord copy_file(const fs::path& from) const;
  // Syncs the directory and gives it its name; what was there under that name is deleted afterwards, with the rest of
  // NAME.partial.
  void commit();

 private:
  void check_final() const;
  void claim();

  fs::path final_;
  fs::path work_;
  fs::path partial_;
  bool overwrite_;
  bool had_leftovers_ = false;
  bool is_kept_ = false;
  bool is_committed_ = false;
  std::unique_ptr<files::DirectoryLock> lock_;
};

// PATH, absolute and without a trailing slash. Errors: kInvalidArgument when it cannot name a new directory.
fs::path destination_path(const fs::path& path);
// NAME.partial for NAME.
fs::path work_path(const fs::path& destination);

// Deletes NAME.partial, unless a process works in it; for when NAME itself is known to be whole. Errors: none.
void remove_leftovers(const fs::path& destination) noexcept;

// Errors: kInvalidArgument when the two are the same, or one lies inside the other.
void check_apart(const fs::path& source, const fs::path& destination);

}  // namespace halfbyte::convert

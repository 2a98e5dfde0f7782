// A directory that appears under its name only when it is whole: written as "NAME.partial" beside it, synced, renamed.
#pragma once

#include <memory>
#include <string_view>

#include "loader/files/platform.h"

namespace halfbyte::convert {

namespace fs = std::filesystem;

class Destination {
 public:
  // Claims NAME.partial, deleting what a killed run may have left there.
  // Errors: kAlreadyExists (a file in the way; a directory without `overwrite`; one that is no checkpoint even with it;
  // another process at work), kNotFound (no parent directory), kInvalidArgument (no name).
  Destination(const fs::path& path, bool overwrite);
  // Removes NAME.partial unless commit() was reached.
  ~Destination();
  Destination(const Destination&) = delete;
  Destination& operator=(const Destination&) = delete;

  const fs::path& final_path() const noexcept { return final_; }
  const fs::path& partial_path() const noexcept { return partial_; }

  // Errors: kNoResources when the disk has less than `needed_bytes` free.
  void check_space(std::uint64_t needed_bytes) const;
  // A small file, written whole and synced.
  void write_file(const fs::path& name, std::string_view text) const;
  // Syncs the directory and gives it its name; what was there under that name is deleted afterwards.
  void commit();

 private:
  void check_final() const;
  void claim();

  fs::path final_;
  fs::path partial_;
  bool overwrite_;
  bool is_committed_ = false;
  std::unique_ptr<files::DirectoryLock> lock_;
};

// Errors: kInvalidArgument when the two are the same, or one lies inside the other.
void check_apart(const fs::path& source, const fs::path& destination);

}  // namespace halfbyte::convert

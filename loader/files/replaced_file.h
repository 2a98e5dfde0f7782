// A file that appears under its name, or takes the place of the one that is there, only when it is whole. For what is
// no checkpoint; those have convert/output/destination.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "loader/files/platform.h"

namespace halfbyte::files {

// It is written in the folder NAME.partial beside it, which is locked while a process works there and removed after;
// what a killed one left there, the next one deletes. Errors of every method: kIo, kNoResources when the disk is full.
class ReplacedFile {
 public:
  // `path`: a link to a file is followed. Errors: also kNotFound (no such folder), kAlreadyExists (another process
  // writes it just now, or NAME.partial is somebody else's).
  ReplacedFile(const fs::path& path, std::uint64_t size_bytes);
  // Without a commit() all is as it was.
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> bytes) { file_->write(offset, bytes); }
  // Syncs it and gives it its name.
  void commit();

 private:
  void claim();
  void release() noexcept;

  fs::path final_;
  fs::path work_;  // NAME.partial
  std::unique_ptr<DirectoryLock> lock_;
  std::unique_ptr<OutputFile> file_;
};

}  // namespace halfbyte::files

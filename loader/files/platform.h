// Every call of the operating system that halfbyte makes on files: mapping, reading, syncing, renaming, locking, free
// space. platform_posix.cpp is the only file to rewrite for another system.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loader/files/data_file.h"

namespace halfbyte::files {

// A file opened for positioned reads. Errors of every method: kIo (kCorrupt when the file ends early), naming the file.
class InputFile final : public DataFile {
 public:
  explicit InputFile(const fs::path& path);  // kNotFound, kIo
  ~InputFile() override;
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const fs::path& path() const noexcept override { return path_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  bool is_on_disk() const noexcept override { return true; }
  void drop_cache_behind(std::uint64_t offset, std::uint64_t size) const noexcept override;

 private:
  fs::path path_;
  int descriptor_ = -1;
  std::uint64_t size_bytes_ = 0;
};

// A whole file mapped private and writable (copy on write): writes stay in this process.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);  // kNotFound, kIo, kNoResources
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  // All of it will be read soon: what is not in memory comes in large pieces, as huge pages where the file system has
  // them. Advice only; does not wait. Page tables are not filled beforehand, which costs more than the faults do (23 ms
  // against 15 for 0.7 GB in small pages).
  void read_ahead() const noexcept;
  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
  std::span<std::byte> bytes_;
};

// A file written at positions, of a size known beforehand. What stays of it in memory lies in huge pages where the file
// system has them: who maps it next has a page fault every 2 MiB, and reads a tenth faster where it reads many small
// matrices. Errors: kIo, kNoResources when the disk is full.
class OutputFile {
 public:
  enum class Existing { kRefuse, kGoOn };  // what is done with a file of that name: kAlreadyExists, or its bytes stay

  // Gives the file its size; space is reserved where the file system can.
  OutputFile(const fs::path& path, std::uint64_t size_bytes, Existing existing = Existing::kRefuse);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(std::uint64_t offset, std::span<const std::byte> bytes);           // thread-safe for disjoint ranges
  void read(std::uint64_t offset, std::span<std::byte> out) const;              // what was written; thread-safe
  void start_writing(std::uint64_t offset, std::uint64_t size) const noexcept;  // to the disk; advice only
  void sync();
  // Before another machine reads it: a network file system says only then what it could not write. The file is closed
  // after an error too.
  void close();

 private:
  void make_huge_pages(std::uint64_t offset, std::uint64_t size) noexcept;

  fs::path path_;
  int descriptor_ = -1;
  std::vector<std::atomic<bool>> has_huge_page_;  // or has been refused one; by place; empty: the file system has none
};

// Of memory that is a mapped file, which nobody has written to: what of it this process has in its own page tables goes
// out of them, and is read again where it is used again. Elsewhere: nothing.
void let_go(const void* memory, std::uint64_t size) noexcept;

// A claim on a directory, gone when the object or the process is; it follows the directory when renamed. A sole one
// excludes all others, a shared one those that are sole.
class DirectoryLock {
 public:
  enum class Sharing { kSole, kShared };
  // Errors: kNotFound, kIo, kAlreadyExists when another claim excludes it.
  explicit DirectoryLock(const fs::path& directory, Sharing sharing = Sharing::kSole);
  // Of a file, which is made where it is missing: such a claim holds between machines too, where the file system passes
  // them on (NFS does, for files alone). Errors: the same; kIo for a link.
  static std::unique_ptr<DirectoryLock> of_file(const fs::path& file, Sharing sharing);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  DirectoryLock() = default;
  void claim(const fs::path& path, int flags, Sharing sharing);

  int descriptor_ = -1;
};

// A new folder among the system's temporary files, readable by its owner only; it and what is in it go with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();  // kIo, kNoResources
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

std::uint64_t free_bytes(const fs::path& directory);
void sync_directory(const fs::path& directory);
// Atomic; fails with kAlreadyExists when `to` exists.
void rename_new(const fs::path& from, const fs::path& to);
// Atomic where the system can; `to` must exist. Returns where that is now which `to` held: at `from`, if that can be.
fs::path exchange(const fs::path& from, const fs::path& to);
// Physical memory of this machine. Units: bytes; 0 when not known.
std::uint64_t memory_bytes() noexcept;
// Peak resident set of this process. Units: bytes.
std::uint64_t peak_rss_bytes() noexcept;
std::uint64_t current_rss_bytes() noexcept;

}  // namespace halfbyte::files

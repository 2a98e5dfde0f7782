// Where tensors' bytes come from: a file as it lies on the disk, or what is computed from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace halfbyte::files {

namespace fs = std::filesystem;

// Errors of reading: kIo (kCorrupt when the file ends early), naming the file.
class DataFile {
 public:
  DataFile() = default;
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  virtual ~DataFile() = default;
  virtual const fs::path& path() const noexcept = 0;  // of the file on the disk
  virtual std::uint64_t size_bytes() const noexcept = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;  // thread-safe
  // Whether read() gives the bytes of path() itself, so that they may be mapped and hashed as its own.
  virtual bool is_on_disk() const noexcept = 0;
  // Advice only: what was read is not needed again.
  virtual void drop_cache_behind(std::uint64_t offset, std::uint64_t size) const noexcept = 0;
};

}  // namespace halfbyte::files

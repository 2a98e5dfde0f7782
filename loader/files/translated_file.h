// Tensors in halfbyte's layout that are computed, when they are read, from a file in another: every reader of a
// checkpoint sees the same bytes as if it had been converted first, and none of them is kept.
#pragma once

#include <memory>
#include <vector>

#include "loader/files/data_file.h"

namespace halfbyte::files {

// The bytes of one tensor. Thread-safe.
class TensorBytes {
 public:
  virtual ~TensorBytes() = default;
  virtual std::uint64_t size_bytes() const noexcept = 0;
  // Bytes [begin, begin + out.size()).
  virtual void read(std::uint64_t begin, std::span<std::byte> out) const = 0;
};

// Of what is computed in units (a row, a block of a row) of the same size.
class UnitBytes : public TensorBytes {
 public:
  UnitBytes(std::uint64_t unit_bytes, std::uint64_t units) : unit_bytes_(unit_bytes), units_(units) {}
  std::uint64_t size_bytes() const noexcept override { return unit_bytes_ * units_; }
  void read(std::uint64_t begin, std::span<std::byte> out) const override;

 protected:
  // Units [first, first + count), one after another. Thread-safe.
  virtual void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const = 0;

 private:
  std::uint64_t unit_bytes_;
  std::uint64_t units_;
};

// Bytes that are known beforehand: a shape, a codebook.
class ConstantBytes final : public TensorBytes {
 public:
  explicit ConstantBytes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  void read(std::uint64_t begin, std::span<std::byte> out) const override;

 private:
  std::vector<std::byte> bytes_;
};

class TranslatedFile final : public DataFile {
 public:
  explicit TranslatedFile(fs::path path) : path_(std::move(path)) {}

  // Returns the tensor's offset. Before anything is read.
  std::uint64_t add(std::unique_ptr<TensorBytes> bytes);

  const fs::path& path() const noexcept override { return path_; }
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  bool is_on_disk() const noexcept override { return false; }
  void drop_cache_behind(std::uint64_t, std::uint64_t) const noexcept override {}

 private:
  struct Part {
    std::uint64_t offset;
    std::unique_ptr<TensorBytes> bytes;
  };
  fs::path path_;
  std::vector<Part> parts_;  // by offset, without holes
  std::uint64_t size_bytes_ = 0;
};

}  // namespace halfbyte::files

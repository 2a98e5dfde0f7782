#include "convert/output/stored_parts.h"

#include <algorithm>

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 24, kBlockBytes = std::uint64_t{1} << 20;

class StoredBytes final : public files::TensorBytes {
 public:
  StoredBytes(std::shared_ptr<const files::DataFile> file, const files::StoredTensor& tensor)
      : file_(std::move(file)), offset_(tensor.offset), size_bytes_(tensor.size_bytes) {}
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  void read(std::uint64_t begin, std::span<std::byte> out) const override { file_->read(offset_ + begin, out); }

 private:
  std::shared_ptr<const files::DataFile> file_;
  std::uint64_t offset_;
  std::uint64_t size_bytes_;
};

class StoredParts final : public ImageSource {
 public:
  explicit StoredParts(std::vector<std::shared_ptr<const files::TensorBytes>> parts) : parts_(std::move(parts)) {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const std::uint64_t size = parts_[part]->size_bytes();
      for (std::uint64_t at = 0; at < size; at += kPieceBytes)
        pieces_.push_back({part, at, std::min(at + kPieceBytes, size)});
    }
  }

  std::size_t pieces() const override { return pieces_.size(); }

  void write(std::size_t piece, const WritePart& write) const override {
    const auto [part, begin, end] = pieces_[piece];
    std::vector<std::byte> block;
    for (std::uint64_t at = begin; at < end; at += block.size()) {
      block.resize(std::min(kBlockBytes, end - at));
      parts_[part]->read(at, block);
      write(part, at, block);
    }
  }

 private:
  struct Piece {
    std::size_t part;
    std::uint64_t begin, end;
  };
  std::vector<std::shared_ptr<const files::TensorBytes>> parts_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::shared_ptr<const ImageSource> stored_parts(std::vector<std::shared_ptr<const files::TensorBytes>> parts) {
  return std::make_shared<StoredParts>(std::move(parts));
}

std::shared_ptr<const files::TensorBytes> stored_bytes(const files::Checkpoint& checkpoint,
                                                       const files::StoredTensor& tensor) {
  return std::make_shared<StoredBytes>(checkpoint.data_files[tensor.file], tensor);
}

}  // namespace halfbyte::convert

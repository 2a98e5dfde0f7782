#include "convert/output/finite_parts.h"

#include "loader/files/finite.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;

// Sees every block that passes.
class CheckedParts : public ImageSource {
 public:
  CheckedParts(const files::Checkpoint& checkpoint, const TensorRecord& record, const ImageRecord& image)
      : source_(image.source), checkpoint_(checkpoint), record_(record) {
    for (const OutputTensor& part : image.parts) dtypes_.push_back(part.dtype);
  }

  std::size_t pieces() const override { return source_->pieces(); }
  void write(std::size_t piece, const WritePart& write) const override {
    source_->write(piece, [&](std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes) {
      check(dtypes_[part], offset, bytes);
      write(part, offset, bytes);
    });
  }

 protected:
  virtual void check(Dtype dtype, std::uint64_t offset, std::span<const std::byte> bytes) const = 0;

  std::shared_ptr<const ImageSource> source_;
  const files::Checkpoint& checkpoint_;
  const TensorRecord& record_;

 private:
  std::vector<Dtype> dtypes_;
};

// Looks at the floats among the parts, which are few; what is large there is looked at together.
class PackedParts final : public CheckedParts {
 public:
  using CheckedParts::CheckedParts;

  void write(std::size_t piece, const WritePart& write) const override {
    if (piece == 0 && record_.nested_offset) files::check_scales(checkpoint_, record_);
    CheckedParts::write(piece, write);
  }

 private:
  void check(Dtype dtype, std::uint64_t, std::span<const std::byte> bytes) const override {
    if (files::may_overflow(dtype, bytes)) files::check_scales(checkpoint_, record_);
  }
};

class DenseParts final : public CheckedParts {
 public:
  using CheckedParts::CheckedParts;

 private:
  void check(Dtype dtype, std::uint64_t offset, std::span<const std::byte> bytes) const override {
    const auto bad = files::first_non_finite(dtype, bytes);
    if (!bad) return;
    const std::uint64_t first = offset / static_cast<std::uint64_t>(size_bytes(dtype));
    files::fail_non_finite("tensor " + files::in_quotes(record_.name), record_.shape, first + bad->index, bad->value);
  }
};

}  // namespace

void check_finite_parts(const files::Checkpoint& checkpoint, const TensorRecord& record, ImageRecord& out) {
  if (!files::must_be_finite(checkpoint, record)) return;
  if (record.scheme) {
    out.source = std::make_shared<PackedParts>(checkpoint, record, out);
  } else {
    out.source = std::make_shared<DenseParts>(checkpoint, record, out);
  }
}

}  // namespace halfbyte::convert

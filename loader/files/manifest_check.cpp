#include "loader/files/manifest_check.h"

#include <optional>

#include <halfbyte/error.h>

#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

// 2^60 keeps sizes from overflowing; no file is that long.
constexpr std::int64_t kMaxLength = std::int64_t{1} << 60;

// A matrix, or a stack of them.
bool can_be_packed(const std::vector<std::int64_t>& shape) noexcept {
  if (shape.size() != 2 && shape.size() != 3) return false;
  if (shape.back() < 1 || shape.back() > kMaxLength) return false;
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (shape[i] < 0 || (shape[i] > 0 && rows > kMaxLength / shape[i])) return false;
    rows *= shape[i];
  }
  return true;
}

class Check {
 public:
  explicit Check(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        where_(printable_path(checkpoint.directory / (checkpoint.manifest.is_derived ? "" : kManifestFile)) + ": "),
        owners_(checkpoint.tensors.size()) {}

  void run() {
    for (const TensorRecord& record : checkpoint_.manifest.tensors) check_record(record);
    for (std::size_t i = 0; i < owners_.size(); ++i) {
      if (!owners_[i]) fail(checkpoint_.tensors[i].name, "is stored, but belongs to no tensor on record");
    }
    check_names();
    check_files();
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + "tensor " + in_quotes(tensor) + ": " + problem);
  }

  // Takes the part and gives its size.
  std::uint64_t take(const TensorRecord& record, const std::string& part, Dtype dtype,
                     const std::vector<std::int64_t>& shape) {
    const StoredTensor* stored = checkpoint_.find(part);
    if (!stored)
      fail(record.name, "its part " + in_quotes(part) + " is in none of the files; copy the checkpoint again");
    const auto index = static_cast<std::size_t>(stored - checkpoint_.tensors.data());
    if (owners_[index])
      fail(record.name, "its part " + in_quotes(part) + " belongs to " + in_quotes(owners_[index]->name) + " too");
    owners_[index] = &record;
    const bool is_shape = shape == std::vector{kAnyLength} ? stored->shape.size() == 1 : stored->shape == shape;
    if (stored->dtype != dtype || !is_shape) {
      fail(record.name, in_quotes(part) + " is stored as " + std::string(name(stored->dtype)) + " " +
                            printable(stored->shape) + ", the record wants " + std::string(name(dtype)) + " " +
                            printable(shape));
    }
    return stored->size_bytes;
  }

  // What a layout cannot say.
  void check_layout(const TensorRecord& record) const {
    const bool is_bitsandbytes = record.scheme->layout == Layout::kBitsandbytes;
    const auto [rows, columns] = matrix_shape(record.shape);
    if (!has_scale_dtype(*record.scheme, record.scale_dtype)) {
      fail(record.name,
           std::string(record.scheme->name) + " has no scales in " + std::string(name(record.scale_dtype)));
    }
    // Rows of whole words, so that a row of codes is an address; 2^62 values keep the sizes from overflowing.
    if (is_bitsandbytes && (record.group_size % 8 != 0 || rows > kMaxLength / columns)) {
      fail(record.name, "shape " + printable(record.shape) + " with group_size " + std::to_string(record.group_size) +
                            " cannot be packed as " + std::string(record.scheme->name));
    }
  }

  std::uint64_t take_packed(const TensorRecord& record) {
    if (!can_be_packed(record.shape)) {
      fail(record.name,
           "shape " + printable(record.shape) + " cannot be packed as " + std::string(record.scheme->name));
    }
    const std::int64_t in_features = record.shape.back();
    if (record.group_size < 1 || in_features % record.group_size != 0) {
      fail(record.name, "group_size " + std::to_string(record.group_size) + " does not divide in_features " +
                            std::to_string(in_features));
    }
    if (record.parts.has(Part::kColumnOrder) && record.shape.size() != 2)
      fail(record.name, "an order of columns is that of one matrix, not of a stack");
    check_layout(record);
    std::uint64_t size = 0;
    for (const PartSpec& spec : packed_parts(record)) {
      if (record.parts.has(spec.part)) size += take(record, record.parts[spec.part], spec.dtype, spec.shape);
    }
    return size;
  }

  void check_record(const TensorRecord& record) {
    const std::uint64_t size = record.scheme
                                   ? take_packed(record)
                                   : take(record, record.parts[Part::kCodes], record.stored_dtype, record.shape);
    if (size != record.size_bytes) {
      fail(record.name,
           "\"bytes\" is " + std::to_string(record.size_bytes) + ", its parts have " + std::to_string(size));
    }
  }

  void check_names() const {
    const Manifest& manifest = checkpoint_.manifest;
    for (const auto& [alias, owner] : manifest.ties) {
      if (!manifest.find(owner)) fail(alias, "is tied to " + in_quotes(owner) + ", which is not on record");
      if (manifest.find(alias)) fail(alias, "is tied to " + in_quotes(owner) + " and has a record of its own");
    }
    for (const auto& [tensor, reason] : manifest.kept) {
      if (!manifest.find(tensor)) fail(tensor, "\"kept\" names it, but it is not on record");
    }
    for (const auto& buffer : manifest.buffers) {
      if (manifest.find(buffer.name)) fail(buffer.name, "is said to be derived and is stored too");
    }
  }

  void check_files() const {
    for (const FileRecord& record : checkpoint_.manifest.files) {
      for (const auto& file : checkpoint_.data_files) {
        if (file->path().filename() != record.name || file->size_bytes() == record.size_bytes) continue;
        throw Error(ErrorCode::kCorrupt, where_ + printable(record.name) + " has " +
                                             std::to_string(file->size_bytes()) + " bytes, " +
                                             std::to_string(record.size_bytes) + " are on record; copy it again");
      }
    }
  }

  const Checkpoint& checkpoint_;
  std::string where_;
  std::vector<const TensorRecord*> owners_;  // of each stored tensor
};

}  // namespace

void check_manifest(const Checkpoint& checkpoint) { Check(checkpoint).run(); }

}  // namespace halfbyte::files

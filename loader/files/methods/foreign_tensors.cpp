#include "loader/files/methods/foreign_tensors.h"

#include <optional>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {

Translation& ForeignTensors::beside(std::size_t file) {
  return translations_.try_emplace(file, checkpoint_, checkpoint_.data_files[file]->path()).first->second;
}

void ForeignTensors::view(const StoredTensor& tensor, std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  if (bytes_of(dtype, shape) != tensor.size_bytes) {
    throw Error(ErrorCode::kCorrupt, place_of(checkpoint_, tensor) + ": has " + std::to_string(tensor.size_bytes) +
                                         " bytes, which do not make " + printable(shape) + " in " +
                                         std::string(halfbyte::name(dtype)));
  }
  StoredTensor seen = tensor;
  seen.name = std::move(name);
  seen.dtype = dtype;
  seen.shape = std::move(shape);
  views_.insert_or_assign(static_cast<std::size_t>(&tensor - checkpoint_.tensors.data()), std::move(seen));
}

void ForeignTensors::finish() {
  for (auto& [index, seen] : views_) checkpoint_.tensors[index] = std::move(seen);
  if (!views_.empty() && translations_.empty()) index_tensors(checkpoint_);
  std::vector<Translation*> all;
  for (auto& [file, translation] : translations_) all.push_back(&translation);
  Translation::finish_all(all);
}

std::optional<std::uint64_t> bytes_of(Dtype dtype, std::span<const std::int64_t> shape) noexcept {
  std::int64_t out = size_bytes(dtype);
  for (const std::int64_t length : shape) {
    if (length < 0 || __builtin_mul_overflow(out, length, &out)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(out);
}

std::string place_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return printable_path(checkpoint.data_files[tensor.file]->path()) + ": tensor " + in_quotes(tensor.name);
}

const StoredTensor& part_of(const Checkpoint& checkpoint, const std::string& name, const std::string& where) {
  if (const StoredTensor* found = checkpoint.find(name)) return *found;
  throw Error(ErrorCode::kCorrupt,
              where + ": its part " + in_quotes(name) + " is missing; download the checkpoint again");
}

const StoredTensor& part_of(const Checkpoint& checkpoint, const std::string& name, const std::string& where,
                            Dtype dtype, std::int64_t values) {
  const StoredTensor& found = part_of(checkpoint, name, where);
  if (found.dtype == dtype && found.size_bytes == bytes_of(dtype, std::span(&values, 1))) return found;
  throw Error(ErrorCode::kCorrupt, where + ": its part " + in_quotes(name) + " is " +
                                       std::string(halfbyte::name(found.dtype)) + " " + printable(found.shape) +
                                       ", wanted " + std::to_string(values) + " values of " +
                                       std::string(halfbyte::name(dtype)));
}

std::string counted_are(std::int64_t tensors) {
  return std::to_string(tensors) + (tensors == 1 ? " tensor is" : " tensors are");
}

}  // namespace halfbyte::files

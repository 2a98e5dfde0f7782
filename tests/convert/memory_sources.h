// Tensors in memory: made by hand, and those of a checkpoint.
#pragma once

#include <memory>

#include <halfbyte/memory_source.h>

#include "loader/files/checkpoint.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

// `tensors` hold its bytes.
inline convert::MemorySource source_of(const std::vector<TestTensor>& tensors, const std::string& config = {}) {
  convert::MemorySource out;
  out.config = config;
  for (const TestTensor& tensor : tensors)
    out.tensors.push_back(
        {tensor.name, *dtype_from_safetensors(tensor.dtype), tensor.shape, std::as_bytes(std::span(tensor.bytes))});
  return out;
}

// The tensors of a checkpoint as a host has them that read it. Holds their bytes.
class Unpacked {
 public:
  explicit Unpacked(const fs::path& directory) : checkpoint_(files::open_checkpoint(directory)) {
    for (const files::TensorRecord& record : checkpoint_.manifest.tensors) {
      if (record.scheme) {
        source.packed.push_back(packed_of(record));
      } else {
        source.tensors.push_back({record.name, record.stored_dtype, record.shape, stored(record.parts[Part::kCodes])});
      }
    }
    if (checkpoint_.has_config()) source.config = checkpoint_.config->dump();
  }

  convert::MemorySource source;

 private:
  std::span<const std::byte> keep(std::vector<std::byte> bytes) {
    return held_.emplace_back(std::make_unique<std::vector<std::byte>>(std::move(bytes))).operator*();
  }

  std::vector<std::byte> bytes_of(const std::string& name) const {
    const files::StoredTensor& tensor = *checkpoint_.find(name);
    std::vector<std::byte> out(tensor.size_bytes);
    files::read_stored(checkpoint_, tensor, 0, out);
    return out;
  }
  std::span<const std::byte> stored(const std::string& name) { return keep(bytes_of(name)); }

  convert::MemoryPackedTensor packed_of(const files::TensorRecord& record) {
    convert::MemoryPackedTensor out{.name = record.name,
                                    .shape = record.shape,
                                    .scheme = record.scheme,
                                    .group_size = record.group_size,
                                    .scale_dtype = record.scale_dtype,
                                    .original_dtype = record.original_dtype,
                                    .parts = {}};
    for (const Part part :
         {Part::kCodes, Part::kScale, Part::kZeroPoint, Part::kOffset, Part::kRowScale, Part::kColumnOrder}) {
      if (record.parts.has(part)) out.parts[static_cast<std::size_t>(part)] = stored(record.parts[part]);
    }
    if (record.scheme->scale_bits % 8 != 0) out.parts[static_cast<std::size_t>(Part::kScale)] = a_byte_each(record);
    return out;
  }

  std::span<const std::byte> a_byte_each(const files::TensorRecord& record) {
    const std::vector<std::byte> bits = bytes_of(record.parts[Part::kScale]);
    const std::int64_t rows = record.shape[0], groups = record.shape[1] / record.group_size;
    const std::int64_t row_bytes = row_scale_bytes(*record.scheme, groups);
    std::vector<std::byte> out(static_cast<std::size_t>(rows * groups));
    for (std::int64_t row = 0; row < rows; ++row)
      quant::unpack_scale_bits(*record.scheme, bits.data() + row * row_bytes, groups, out.data() + row * groups);
    return keep(std::move(out));
  }

  files::Checkpoint checkpoint_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> held_;
};

inline std::string config_text(bool is_tied = false) { return llama_config(is_tied).dump(2) + "\n"; }

// More than one block of a few, and rows that fill no word of zero points.
inline std::vector<TestTensor> matrices() {
  return {float_tensor("a.weight", {301, 256}), float_tensor("bb.weight", {13, 128}, Dtype::kFloat32),
          float_tensor("ccc.weight", {8, 384}, Dtype::kFloat16), float_tensor("norm.weight", {64})};
}

// Quantised before, in this scheme.
inline void write_packed(const Scheme& scheme, const fs::path& directory) {
  const Scratch scratch;
  write_checkpoint(scratch / "src", matrices(), {{"model_type", "foo"}});
  convert::quantize(scratch / "src", directory, {.scheme = std::string(scheme.name), .halfbyte_only = true});
}

}  // namespace halfbyte::testing

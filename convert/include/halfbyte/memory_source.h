// Tensors in memory to a checkpoint: quantize() for hosts that have no files to read from. Needs no LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <halfbyte/convert.h>
#include <halfbyte/parts.h>
#include <halfbyte/scheme.h>

namespace halfbyte::convert {

// A dense tensor, row-major.
struct MemoryTensor {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // as many as dtype and shape say
};

// A packed matrix, as quantize_tensor() gives it. Of `parts` those are used that hold codes, scales, zero points,
// offsets, row scales and a column order (int32); what else its scheme stores follows from the rest.
struct MemoryPackedTensor {
  std::string name;                 // of the matrix before
  std::vector<std::int64_t> shape;  // of the same
  const Scheme* scheme = nullptr;
  std::int64_t group_size = 0;          // in columns
  Dtype scale_dtype = Dtype::kFloat32;  // of row scales' multiples: int8
  std::optional<Dtype> original_dtype = {};
  std::array<std::span<const std::byte>, kPartCount> parts;
};

// The bytes stay the caller's, and must stay there while it is written.
struct MemorySource {
  std::vector<MemoryTensor> tensors;
  std::vector<MemoryPackedTensor> packed = {};
  std::string config = {};                        // config.json's text; empty: nothing says what the model is
  std::map<std::string, std::string> files = {};  // to be written beside the tensors, by name
};

// As quantize() of a path. Where all that is to be packed is so already, its codes are kept, with `keep_codes`. Nothing
// can be resumed: an error or a stop removes what was written. Errors: as quantize(); kInvalidArgument also for a
// tensor that does not fill its shape, two of one name, a name that no safetensors file can have, and a file name with
// a folder in it or of the kind that the result's tensors have.
QuantizeSummary quantize(const MemorySource& source, const std::filesystem::path& destination,
                         const QuantizeOptions& options = {});

}  // namespace halfbyte::convert

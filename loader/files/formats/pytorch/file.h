// The tensors of one file that torch.save wrote, as they lie in it. For the formats that consist of such files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <halfbyte/dtype.h>

#include "loader/files/platform.h"

namespace halfbyte::files {

// Checked: every value lies in the file.
struct TensorView {
  std::string name;
  Dtype dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // Units: values
  std::uint64_t offset = 0;           // of the first value, from the start of the file
  std::uint64_t size_bytes = 0;       // of all values, one after another

  bool is_contiguous() const noexcept;
};

struct PytorchFile {
  std::vector<TensorView> tensors;
  std::vector<std::string> notes;
};

// Whether a file starts as torch.save's files do, of any version.
bool is_pytorch(const InputFile& file);

// Reads a file's directory and pickle, not its values. A dictionary of tensors, or one that holds such a dictionary;
// what is no tensor in it becomes a note. Errors: kUnsupported (a pickle that asks for more than tensors; an old or
// foreign container; big-endian values; no dictionary of tensors), kCorrupt, naming the file.
PytorchFile read_pytorch(const InputFile& file);

}  // namespace halfbyte::files

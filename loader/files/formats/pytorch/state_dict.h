// A state dict: which of a pickle's objects are the model's tensors, and where their values lie.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/files/formats/pytorch/file.h"
#include "loader/files/formats/pytorch/pickle.h"

namespace halfbyte::files {

// Of a storage's values, from the start of the file; inside it. Units: bytes.
struct Place {
  std::uint64_t offset = 0, size_bytes = 0;
};

// `places`: of each of the pickle's storages. Errors: kUnsupported: no dictionary of tensors, or one that repeats
// values many times; kCorrupt: a view that leaves its storage, a name that is there twice.
PytorchFile read_state_dict(const InputFile& file, const pickle::Pickle& pickle, const std::vector<Place>& places);

}  // namespace halfbyte::files

// A checkpoint as if adapters were part of its weights: for quantising those again, or writing all plain.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "convert/merge/merged_rows.h"

namespace halfbyte::convert {

struct MergedView {
  files::Checkpoint checkpoint;
  std::map<std::string, std::shared_ptr<MergedTensor>> merged;  // by the tensor's name
};

struct OpenAdapter {
  std::shared_ptr<const PeftAdapter> adapter;
  double weight;
};

// Tensors that an adapter names are dense, in the dtype on record (float32 where none is known); the others as they
// are. Errors: kUnsupported naming a module that has no matrix of its own; kInvalidArgument naming one that the model
// has not, or whose shape is another.
MergedView merged_view(files::Checkpoint source, std::span<const OpenAdapter> adapters);

}  // namespace halfbyte::convert

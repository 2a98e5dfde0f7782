// Which policy decides each tensor's dtype: the load's own, an override of the caller, or float32 where a keep_float32
// pattern says so. Needs no LibTorch: the loader applies it, and `inspect --policy` predicts with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>

#include "loader/files/checkpoint.h"
#include "models/architectures/architecture.h"

namespace halfbyte {

// As files::matches_pattern, against the tensor's name or that of a module that holds it: "model.layers.*.mlp" names
// every tensor of those modules.
bool matches_tensor_or_module(std::string_view pattern, std::string_view tensor_name) noexcept;

class DtypeChoice {
 public:
  // Both must outlive it.
  DtypeChoice(const files::Checkpoint& checkpoint, const LoadOptions& options)
      : checkpoint_(checkpoint), options_(options) {}

  struct Chosen {
    DtypePolicy policy;
    std::string why;  // for the report; empty: the load's own policy
  };
  // keep_float32 wins over overrides, the last matching override over the others. Tied names are matched together:
  // they are one tensor.
  Chosen of(const std::string& name) const;
  bool is_kept_float32(const std::string& name) const;
  // The role that decides a tensor's dtype. A tied one is an operand of the head's product.
  models::Role role_of(const files::TensorRecord& record) const;
  // What the product of a Linear weight takes its activation as: a dtype, or words for promotion.
  std::string operand_of(const std::string& name) const;

 private:
  std::vector<std::string> names_of(const std::string& name) const;

  const files::Checkpoint& checkpoint_;
  const LoadOptions& options_;
};

// A dtype's name; nothing: words for "as recorded".
std::string dtype_text(std::optional<Dtype> dtype);

// Adds to a line's note, after what stands there.
void add_note(LoadedTensor& line, const std::string& note);

// Names that patterns of the caller can mean: tensors, tied aliases and derived buffers.
std::vector<std::string> tensor_names(const files::Checkpoint& checkpoint);

// Errors: kInvalidArgument naming the first keep_float32 or override pattern of the caller that matches none of
// `names`.
void check_patterns(const files::Checkpoint& checkpoint, const LoadOptions& options,
                    const std::vector<std::string>& names);

}  // namespace halfbyte

// What halfbyte knows of a model family without LibTorch: its configuration, its tensors' names, roles and shapes, the
// buffers it derives. For the converter (which tensors are Linear weights) and the loader (which tensors must be
// there).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/dtype.h>

#include "models/architectures/family.h"
#include "models/architectures/model_config.h"
#include "models/json/held.h"

namespace halfbyte::models {

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Role role;
  std::vector<std::int64_t> dense_shape = {};  // where it is not quantised; empty: the same
};

// A buffer that the model computes instead of storing, as the original implementation holds it.
struct DerivedBuffer {
  std::string name;
  Dtype original_dtype;
  std::string how;  // "rope"
  HeldJson inputs;  // what it is computed from
};

// One row of the table of families, ready for use.
struct Architecture {
  std::string_view model_type;  // config.json's "model_type"
  std::string_view class_name;  // config.json's "architectures"[0]
  const Family* family;
  std::vector<Naming> namings;  // the family's, and of a text part those below its paths
  std::vector<TensorPattern> tensors;

  // Names as the family's usual ones; see choose_naming. Errors: kCorrupt, kUnsupported naming the field.
  ModelConfig parse(const nlohmann::json& config) const;
  // In the order of use.
  static std::vector<ExpectedTensor> expected(const ModelConfig& config);
  static std::vector<DerivedBuffer> derived(const ModelConfig& config);
  // [alias, owner] pairs of tensors that are one storage under this configuration.
  static std::vector<std::pair<std::string, std::string>> ties(const ModelConfig& config);
  // Some families are stored under more than one naming: the one is taken that most of the tensors bear out.
  void choose_naming(ModelConfig& config, const std::function<bool(const std::string&)>& has) const;
};

std::span<const Architecture> architectures() noexcept;
// By model_type, else by architectures[0]; of a model that sees or hears too, by its "text_config". Null: the family is
// not known.
const Architecture* find_architecture(const nlohmann::json& config);

// The role of a tensor by the family's patterns; for an unknown family (null) by general naming: a rank-2 "*.weight"
// that is not an embedding, norm or head is a Linear.
Role role_of(const Architecture* architecture, std::string_view tensor_name, std::span<const std::int64_t> shape);

// "float16", ... of config.json's "dtype" or "torch_dtype", or its text part's, or nothing.
std::optional<Dtype> declared_dtype(const nlohmann::json& config);

}  // namespace halfbyte::models

// The table of tensors: for every module with weights where it stands, what it is for, its shape, and which layers have
// it. The names that a checkpoint can hold, the tensors that a model needs, and what is gathered for its modules derive
// from it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/architectures/model_config.h"

namespace halfbyte::models {

// Which path a module's name stands below.
enum class Place : std::uint8_t {
  kModel,
  kLayer,
  kAttention,
  kLatent,  // of attention by a latent vector
  kConvolution,
  kDelta,
  kMlp,
  kMoe,
  kExpert,   // an expert's own
  kExperts,  // one tensor of all experts
  kShared,   // of the MLP beside the experts
};

// A module by what Naming calls it.
using ModuleName = std::string_view Naming::*;
// One size of a shape.
using Size = std::int64_t (*)(const ModelConfig&, const LayerConfig&);

struct TensorRow {
  ModuleName module;
  Place place;
  Role role;
  std::array<Size, 3> shape = {};  // of the weight, up to the first null; none: the model derives it
  // Whether a layer that has such a place has it, where the family has a name for it. Null: it has.
  bool (*is_present)(const ModelConfig&, const LayerConfig&) = nullptr;
  bool ModelConfig::*has_bias = nullptr;  // null: never
  bool is_bare = false;                   // its tensor is called as the module is, without ".weight"

  // What follows the module's name in its tensor's.
  std::string_view suffix() const noexcept;
};

// In the order of use.
std::span<const TensorRow> tensor_table() noexcept;
const TensorRow& row_of(ModuleName module) noexcept;

// The path above a module, with its dot. `layer` and `expert`: numbers, or "{}" for any.
std::string path_above(const Naming& naming, Place place, std::string_view layer, std::string_view expert);
// Whether families of this naming have such a place.
bool has_place(const Naming& naming, Place place) noexcept;

// A module with weights, of one model.
struct ModuleAt {
  const TensorRow* row;
  std::string path;                      // its own
  std::int64_t layer = -1;               // -1: the model's
  std::int64_t expert = -1;              // -1: no expert's, or all experts'
  std::vector<std::int64_t> shape = {};  // of the weight
  bool has_bias = false;

  std::string weight() const { return path + std::string(row->suffix()); }
  std::string bias() const { return path + ".bias"; }
};

// All that a model of this configuration has, in the order of use.
std::vector<ModuleAt> modules_of(const ModelConfig& config);
// Whether a tensor that is not among them is kept without being run: of layers ahead, of what sees and hears, or keys
// and values of a layer that attends to another's.
bool is_not_run(const ModelConfig& config, std::string_view name);

}  // namespace halfbyte::models

// What a GGUF file's general.architecture says of its tensors: their names in transformers, and what llama.cpp's
// converter did to some of them. Source: ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py and conversion/.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/files/formats/gguf/file.h"
#include "loader/files/formats/gguf/layout.h"
#include "models/architectures/family.h"
#include "models/architectures/tensor_table.h"

namespace halfbyte::files {

// What the file has instead of a value. kMinusExp: -exp(value).
enum class GgufValues : std::uint8_t { kAsTheyAre, kPlusOne, kMinusExp };

struct GgufModule {
  std::string_view gguf;  // below "blk.N." but for those of the model
  models::ModuleName name;
  std::string_view suffix = ".weight";  // of a tensor that is called as its module is; others have ".weight", ".bias"
  GgufLayoutOf layout = nullptr;        // null: as it lies in transformers
  bool is_turned = false;               // where the architecture's rotation turns neighbours: turned_heads
  GgufValues values = GgufValues::kAsTheyAre;
  bool is_read_only = false;  // another way to say what another row says; it is not written
};

// What llama.cpp does with attention.sliding_window. kSomeLayers: sliding_window_pattern says which layers slide.
// kChunks: it has one of its own, but where the key is 0.
enum class GgufWindow : std::uint8_t { kIgnored, kRead, kRequired, kSomeLayers, kChunks };

struct GgufFamily {
  std::string_view architecture;  // general.architecture
  std::string_view model_type;    // of halfbyte's family
  // Of the architectures that hold more than one family: whether the file is of this one. Null: it is.
  bool (*applies)(const GgufFile& file) = nullptr;
  bool has_metas_rotation = false;  // queries' and keys' rows turn neighbours
  bool adds_one_to_norms = false;
  bool has_gelu = false;  // by its approximation; else SiLU
  GgufWindow window = GgufWindow::kIgnored;
  std::int64_t full_every = 0;  // every so many layers sees everything, where the file has no pattern
  // The scale of queries is not on record: it is head_dim's, or hidden_size / heads's in models of this many layers.
  std::int64_t wide_query_layers = 0;
  std::string_view norm_eps = "attention.layer_norm_rms_epsilon";
  std::span<const GgufModule> modules = {};  // that it calls, or lays out, otherwise than most do
};

// Null: the architecture is not known.
const GgufFamily* find_gguf_family(const GgufFile& file);
const models::Family& family_of(const GgufFamily& family);
// Of a family of halfbyte's, for a file that is to be written. Null: llama.cpp has none.
const GgufFamily* gguf_family_of(std::string_view model_type) noexcept;
// Rows of most families, of which a family's own take the place.
std::span<const GgufModule> usual_gguf_modules() noexcept;

struct GgufName {
  std::string name;       // "{}" stands for an expert's number when is_stack
  bool is_stack = false;  // one tensor of all experts, which are apart here
  // Of a stack whose experts have their gates' rows, and then others, which are a matrix of their own here.
  std::string second = {};
  models::Role role = models::Role::kUnknown;
  GgufLayoutOf layout = nullptr;
  GgufValues values = GgufValues::kAsTheyAre;
  bool is_reshaped = false;  // dimensions of 1 that transformers has may be missing
};

// Names of a model's tensors in GGUF that this naming has, each with its name in transformers.
std::vector<std::pair<std::string, GgufName>> gguf_names(const GgufFamily& family, const models::Naming& naming,
                                                         std::int64_t layers);

// Finds names of one file's tensors.
class GgufNames {
 public:
  GgufNames(const GgufFamily& family, const models::Naming& naming);

  // Nothing: the family has no such tensor.
  std::optional<GgufName> find(std::string_view gguf_name) const;
  const std::vector<GgufModule>& modules() const noexcept { return modules_; }

 private:
  std::optional<GgufName> module_name(std::string_view rest, std::string_view layer) const;
  std::optional<GgufName> single_expert(std::string_view rest, std::string_view layer) const;
  std::optional<GgufName> fused_experts(std::string_view rest, std::string_view layer) const;
  GgufName name_by(const GgufModule& row, std::string_view suffix, std::string_view layer) const;

  const GgufFamily& family_;
  const models::Naming& naming_;
  std::vector<GgufModule> modules_;
};

}  // namespace halfbyte::files

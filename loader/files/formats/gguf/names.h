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
#include "models/architectures/family.h"
#include "models/architectures/tensor_table.h"

namespace halfbyte::files {

enum class HeadRows : std::uint8_t { kNone, kQuery, kKey };

struct GgufModule {
  std::string_view gguf;  // below "blk.N." but for those of the model
  models::ModuleName name;
  HeadRows heads = HeadRows::kNone;  // of rows that the architecture's rotation has in another order
};

// What llama.cpp does with attention.sliding_window. kSomeLayers: sliding_window_pattern says which layers slide.
enum class GgufWindow : std::uint8_t { kIgnored, kRead, kRequired, kSomeLayers };

struct GgufFamily {
  std::string_view architecture;  // general.architecture
  std::string_view model_type;    // of halfbyte's family
  // Of the architectures that hold more than one family: whether the file is of this one. Null: it is.
  bool (*applies)(const GgufFile& file) = nullptr;
  bool has_metas_rotation = false;  // queries' and keys' rows turn neighbours
  bool adds_one_to_norms = false;
  GgufWindow window = GgufWindow::kIgnored;
  std::int64_t full_every = 0;  // every so many layers sees everything, where the file has no pattern
  // The scale of queries is not on record: it is head_dim's, or hidden_size / heads's in models of this many layers.
  std::int64_t wide_query_layers = 0;
  std::string_view norm_eps = "attention.layer_norm_rms_epsilon";
  std::span<const GgufModule> modules = {};  // that it calls otherwise than most do
};

// Null: the architecture is not known.
const GgufFamily* find_gguf_family(const GgufFile& file);
const models::Family& family_of(const GgufFamily& family);

struct GgufName {
  std::string name;       // "{}" stands for an expert's number when is_stack
  bool is_stack = false;  // one tensor of all experts, which are apart here
  bool is_norm = false;
  HeadRows heads = HeadRows::kNone;  // of rows that the architecture's rotation has in another order
};

// For a file that is to be written: the architecture of a family of halfbyte's. Null: llama.cpp has none.
const GgufFamily* gguf_family_of(std::string_view model_type) noexcept;
// Names of a model's tensors in GGUF that this naming has, each with its name in transformers.
std::vector<std::pair<std::string, GgufName>> gguf_names(const GgufFamily& family, const models::Naming& naming,
                                                         std::int64_t layers);

// Nothing: the family has no such tensor.
std::optional<GgufName> name_of(std::string_view gguf_name, const GgufFamily& family, const models::Naming& naming);

}  // namespace halfbyte::files

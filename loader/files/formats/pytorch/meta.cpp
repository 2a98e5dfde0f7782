#include "loader/files/formats/pytorch/meta.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/pytorch/merged_rows.h"
#include "loader/files/formats/pytorch/meta_params.h"
#include "loader/files/formats/pytorch/pytorch.h"
#include "loader/files/printable.h"
#include "loader/files/translation.h"

namespace halfbyte::files {
namespace {

constexpr const char* kParamsFile = "params.json";
constexpr std::string_view kPrefix = "consolidated.", kSuffix = ".pth", kLayers = "layers.";

// What the shards hold of a tensor.
enum class Split : std::uint8_t { kReplicated, kRows, kColumns, kEither };
enum class Heads : std::uint8_t { kNone, kQueries, kKeys };

struct Name {
  std::string_view meta;
  std::string_view hugging_face;
  Split split;
  Heads heads = Heads::kNone;
};

// Llama 2 gives each shard columns of the embedding, Llama 3 rows.
constexpr auto kModelNames = std::to_array<Name>({
    {.meta = "tok_embeddings.weight", .hugging_face = "model.embed_tokens.weight", .split = Split::kEither},
    {.meta = "norm.weight", .hugging_face = "model.norm.weight", .split = Split::kReplicated},
    {.meta = "output.weight", .hugging_face = "lm_head.weight", .split = Split::kRows},
});
// Below "layers.N." and "model.layers.N.".
constexpr auto kLayerNames = std::to_array<Name>({
    {.meta = "attention.wq.weight",
     .hugging_face = "self_attn.q_proj.weight",
     .split = Split::kRows,
     .heads = Heads::kQueries},
    {.meta = "attention.wk.weight",
     .hugging_face = "self_attn.k_proj.weight",
     .split = Split::kRows,
     .heads = Heads::kKeys},
    {.meta = "attention.wv.weight", .hugging_face = "self_attn.v_proj.weight", .split = Split::kRows},
    {.meta = "attention.wo.weight", .hugging_face = "self_attn.o_proj.weight", .split = Split::kColumns},
    {.meta = "feed_forward.w1.weight", .hugging_face = "mlp.gate_proj.weight", .split = Split::kRows},
    {.meta = "feed_forward.w2.weight", .hugging_face = "mlp.down_proj.weight", .split = Split::kColumns},
    {.meta = "feed_forward.w3.weight", .hugging_face = "mlp.up_proj.weight", .split = Split::kRows},
    {.meta = "attention_norm.weight", .hugging_face = "input_layernorm.weight", .split = Split::kReplicated},
    {.meta = "ffn_norm.weight", .hugging_face = "post_attention_layernorm.weight", .split = Split::kReplicated},
});
constexpr std::string_view kRotaryTable = "rope.freqs";  // computed from params.json

struct Renamed {
  std::string name;
  const Name* row;
};

std::optional<Renamed> renamed(std::string_view meta) {
  if (!meta.starts_with(kLayers)) {
    const auto row = std::ranges::find(kModelNames, meta, &Name::meta);
    if (row == kModelNames.end()) return std::nullopt;
    return Renamed{std::string(row->hugging_face), &*row};
  }
  const std::size_t dot = meta.find('.', kLayers.size());
  if (dot == std::string_view::npos) return std::nullopt;
  const auto row = std::ranges::find(kLayerNames, meta.substr(dot + 1), &Name::meta);
  if (row == kLayerNames.end()) return std::nullopt;
  return Renamed{"model." + std::string(meta.substr(0, dot + 1)) + std::string(row->hugging_face), &*row};
}

// One tensor, in every shard.
struct Parts {
  Renamed to;
  std::vector<const TensorView*> views;
};

class MetaTensors {
 public:
  MetaTensors(std::span<const fs::path> paths, Checkpoint& checkpoint)
      : paths_(paths),
        checkpoint_(checkpoint),
        params_(read_meta_params(checkpoint.directory / kParamsFile)),
        translation_(checkpoint, paths[0]) {
    for (const fs::path& path : paths) {
      auto file = std::make_shared<InputFile>(path);
      shards_.push_back(read_pytorch(*file));
      for (const std::string& note : shards_.back().notes)
        checkpoint.notes.push_back(printable_path(path.filename()) + ": " + note);
      checkpoint.data_files.push_back(std::move(file));
      checkpoint.data_offsets.push_back(0);
    }
  }

  void run() {
    for (Parts& parts : gather()) add(parts);
    if (hidden_dim_ == 0 || vocab_size_ == 0)
      throw Error(ErrorCode::kCorrupt, printable_path(paths_[0]) + ": holds no embedding or no MLP of Meta's Llama");
    checkpoint_.config = config_of(params_, hidden_dim_, vocab_size_, has_head_, halfbyte::name(dtype_));
    checkpoint_.notes.emplace_back(
        "config.json is made from params.json, which does not say everything: the longest "
        "context and the tokens of begin and end are those of Meta's models of this kind");
    translation_.finish();
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, printable_path(checkpoint_.directory) + ": tensor " + in_quotes(tensor) + " " +
                                         problem + "; download the checkpoint again");
  }

  std::vector<Parts> gather() const {
    std::vector<Parts> out;
    std::map<std::string_view, std::size_t> index;
    for (const TensorView& view : shards_[0].tensors) {
      if (view.name.ends_with(kRotaryTable)) continue;
      const auto to = renamed(view.name);
      if (!to)
        throw Error(ErrorCode::kUnsupported, printable_path(paths_[0]) + ": tensor " + in_quotes(view.name) +
                                                 " is none of Meta's Llama; get the model from Hugging Face");
      index.emplace(view.name, out.size());
      out.push_back({*to, {&view}});
    }
    for (std::size_t i = 1; i < shards_.size(); ++i) {
      for (const TensorView& view : shards_[i].tensors) {
        if (view.name.ends_with(kRotaryTable)) continue;
        const auto found = index.find(view.name);
        if (found == index.end()) fail(view.name, "is not in every shard");
        out[found->second].views.push_back(&view);
      }
    }
    for (const Parts& parts : out) check_alike(parts);
    return out;
  }

  void check_alike(const Parts& parts) const {
    const TensorView& first = *parts.views[0];
    if (parts.views.size() != shards_.size()) fail(first.name, "is not in every shard");
    const std::size_t rank = parts.to.row->split == Split::kReplicated ? 1 : 2;
    for (const TensorView* view : parts.views) {
      if (view->shape != first.shape || view->dtype != first.dtype)
        fail(first.name, "differs in shape or dtype between shards");
    }
    if (first.shape.size() != rank || first.size_bytes == 0) fail(first.name, "has shape " + printable(first.shape));
  }

  std::int64_t shard_count() const { return static_cast<std::int64_t>(shards_.size()); }

  Split split_of(const Parts& parts) const {
    if (parts.to.row->split != Split::kEither) return parts.to.row->split;
    return parts.views[0]->shape[1] == params_.dim ? Split::kRows : Split::kColumns;
  }

  std::vector<std::int64_t> shape_of(const Parts& parts, Split split) const {
    std::vector<std::int64_t> out = parts.views[0]->shape;
    if (split == Split::kReplicated) return out;
    out[split == Split::kColumns ? 1 : 0] *= shard_count();
    return out;
  }

  // As params.json says; what it does not say, the first tensor that has it does.
  void check_shape(const Parts& parts, const std::vector<std::int64_t>& shape) {
    const std::string_view name = parts.to.row->hugging_face;
    std::vector<std::int64_t> wanted = shape;
    const std::int64_t kv_dim = params_.kv_heads * params_.head_dim();
    if (name.starts_with("mlp.")) {
      const bool is_down = parts.to.row->split == Split::kColumns;
      if (hidden_dim_ == 0) hidden_dim_ = shape[is_down ? 1 : 0];
      wanted = is_down ? std::vector{params_.dim, hidden_dim_} : std::vector{hidden_dim_, params_.dim};
    } else if (shape.size() == 1) {
      wanted = {params_.dim};
    } else if (name.starts_with("self_attn.k_") || name.starts_with("self_attn.v_")) {
      wanted = {kv_dim, params_.dim};
    } else if (name.starts_with("self_attn.")) {
      wanted = {params_.dim, params_.dim};
    } else {
      if (vocab_size_ == 0) vocab_size_ = params_.vocab_size > 0 ? params_.vocab_size : shape[0];
      wanted = {vocab_size_, params_.dim};
    }
    if (shape != wanted)
      fail(parts.views[0]->name, "has shape " + printable(shape) + " over " + std::to_string(shard_count()) +
                                     " shards, where params.json wants " + printable(wanted));
  }

  std::int64_t heads_of(const Parts& parts) const {
    const Heads heads = parts.to.row->heads;
    return heads == Heads::kNone ? 0 : heads == Heads::kQueries ? params_.heads : params_.kv_heads;
  }

  void add(const Parts& parts) {
    const TensorView& first = *parts.views[0];
    const Split split = split_of(parts);
    const std::vector<std::int64_t> shape = shape_of(parts, split);
    check_shape(parts, shape);
    if (parts.to.row->hugging_face == "lm_head.weight") has_head_ = true;
    if (shape.size() == 2) dtype_ = first.dtype;
    const bool is_whole = split == Split::kReplicated || (shard_count() == 1 && heads_of(parts) == 0);
    if (is_whole && first.is_contiguous()) {
      checkpoint_.tensors.push_back({parts.to.name, first.dtype, shape, 0, first.offset, first.size_bytes});
      return;
    }
    std::vector<std::unique_ptr<TensorBytes>> bytes;
    for (std::size_t i = 0; i < (is_whole ? 1 : parts.views.size()); ++i)
      bytes.push_back(bytes_of_view(checkpoint_.data_files[i], *parts.views[i]));
    const std::uint64_t row_bytes =
        first.size_bytes / (shape.size() == 2 ? static_cast<std::uint64_t>(first.shape[0]) : 1);
    const RowOrder order{shape.size() == 2 ? shape[0] : 1, heads_of(parts)};
    translation_.add(
        parts.to.name, first.dtype, shape,
        std::make_unique<MergedRows>(std::move(bytes), split == Split::kColumns ? Merge::kColumns : Merge::kRows,
                                     row_bytes, order));
  }

  std::span<const fs::path> paths_;
  Checkpoint& checkpoint_;
  MetaParams params_;
  Translation translation_;
  std::vector<PytorchFile> shards_;
  std::int64_t hidden_dim_ = 0, vocab_size_ = 0;
  bool has_head_ = false;
  Dtype dtype_ = Dtype::kFloat16;
};

// "consolidated.03.pth" -> 3.
std::optional<std::size_t> number_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size())
    return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  std::size_t out = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return out;
}

}  // namespace

bool is_meta(const InputFile&) { return false; }

std::vector<std::string> pick_meta(const fs::path& directory, const std::vector<std::string>& names) {
  const auto is_pickled_model = [](const std::string& name) { return name.starts_with("pytorch_model"); };
  if (std::ranges::any_of(names, is_pickled_model)) return {};
  std::map<std::size_t, std::string> shards;
  for (const std::string& name : names) {
    if (const auto number = number_of(name)) shards.emplace(*number, name);
  }
  std::vector<std::string> out;
  for (const auto& [number, name] : shards) {
    if (number != out.size())
      throw Error(ErrorCode::kCorrupt, printable_path(directory) + ": shard " + std::to_string(out.size()) + " of " +
                                           printable(name) + "'s model is missing; download it");
    out.push_back(name);
  }
  if (!out.empty() && std::ranges::find(names, kParamsFile) == names.end())
    throw Error(ErrorCode::kNotFound, printable_path(directory / kParamsFile) + ": is not beside Meta's " +
                                          printable(out[0]) + "; copy it here");
  return out;
}

std::vector<TensorRecord> open_meta(std::span<const fs::path> paths, Checkpoint& checkpoint) {
  MetaTensors(paths, checkpoint).run();
  return {};
}

}  // namespace halfbyte::files

#include "loader/files/formats/llama2c.h"

#include <array>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/llama2c_tokenizer.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/row_bytes.h"
#include "loader/files/translation.h"

namespace halfbyte::files {
namespace {

constexpr std::uint32_t kMagic = 0x616b3432;  // "ak42"; version 0 has none
constexpr std::uint64_t kHeaderBytes = 256;   // of versions 1 and 2
constexpr std::int64_t kMaxLength = 1 << 22;  // of any dimension: above every model, and no product overflows
constexpr std::int64_t kMaxLayers = 1 << 10;

struct Header {
  int version = 0;
  std::int64_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocab_size = 0, context = 0;
  bool has_shared_classifier = true;
  std::int64_t group_size = 0;  // version 2
  std::uint64_t data_offset = 0;

  std::int64_t kv_dim() const noexcept { return dim / heads * kv_heads; }
};

template <typename T>
T read_at(const InputFile& file, std::uint64_t offset) {
  T out{};
  file.read(offset, std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

bool in_range(std::int64_t value) noexcept { return value > 0 && value <= kMaxLength; }

bool is_sensible(const Header& h) noexcept {
  const bool in_bounds = in_range(h.dim) && in_range(h.hidden_dim) && in_range(h.layers) && in_range(h.heads) &&
                         in_range(h.kv_heads) && in_range(h.vocab_size) && in_range(h.context) &&
                         h.layers <= kMaxLayers;
  return in_bounds && h.dim % h.heads == 0 && h.dim / h.heads % 2 == 0 && h.heads % h.kv_heads == 0;
}

std::optional<Header> read_header(const InputFile& file) {
  if (file.size_bytes() < kHeaderBytes) return std::nullopt;
  Header out;
  std::uint64_t at = 0;
  if (read_at<std::uint32_t>(file, 0) == kMagic) {
    out.version = read_at<std::int32_t>(file, 4);
    at = 8;
  }
  std::array<std::int32_t, 7> fields{};
  file.read(at, std::as_writable_bytes(std::span(fields)));
  out.dim = fields[0], out.hidden_dim = fields[1], out.layers = fields[2], out.heads = fields[3];
  out.kv_heads = fields[4], out.vocab_size = fields[5], out.context = fields[6];
  at += sizeof fields;
  out.data_offset = at;
  if (at == sizeof fields) {  // version 0 says by the sign that the classifier has weights of its own
    out.has_shared_classifier = out.vocab_size > 0;
    if (out.vocab_size < 0) out.vocab_size = -out.vocab_size;
  } else {
    out.has_shared_classifier = read_at<std::uint8_t>(file, at) != 0;
    if (out.version == 2) out.group_size = read_at<std::int32_t>(file, at + 1);
    out.data_offset = kHeaderBytes;
  }
  return is_sensible(out) ? std::optional(out) : std::nullopt;
}

// A tensor of all layers, one after another, in the file's order. An empty name: bytes that are skipped.
struct Block {
  const char* name;  // after "model.layers.N." if it is of every layer
  bool is_of_layers;
  std::int64_t rows, columns;  // columns 0: a vector
  std::int64_t heads = 0;      // queries and keys
};

std::vector<Block> blocks_of(const Header& h) {
  const Block embedding{"model.embed_tokens.weight", false, h.vocab_size, h.dim};
  const Block input_norm{"input_layernorm.weight", true, h.dim, 0};
  const Block mlp_norm{"post_attention_layernorm.weight", true, h.dim, 0};
  const Block norm{"model.norm.weight", false, h.dim, 0};
  const std::vector<Block> attention{{"self_attn.q_proj.weight", true, h.dim, h.dim, h.heads},
                                     {"self_attn.k_proj.weight", true, h.kv_dim(), h.dim, h.kv_heads},
                                     {"self_attn.v_proj.weight", true, h.kv_dim(), h.dim},
                                     {"self_attn.o_proj.weight", true, h.dim, h.dim}};
  const std::vector<Block> mlp{{"mlp.gate_proj.weight", true, h.hidden_dim, h.dim},
                               {"mlp.down_proj.weight", true, h.dim, h.hidden_dim},
                               {"mlp.up_proj.weight", true, h.hidden_dim, h.dim}};
  std::vector<Block> out;
  const auto append = [&](const std::vector<Block>& more) { out.insert(out.end(), more.begin(), more.end()); };
  if (h.version == 0) {
    append({embedding, input_norm});
    append(attention);
    append({mlp_norm});
    append(mlp);
    append({norm, {"", false, h.context, h.dim / h.heads}});  // the rotary tables: cosines, sines
  } else {
    append({input_norm, mlp_norm, norm, embedding});
    append(attention);
    append(mlp);
  }
  if (!h.has_shared_classifier) out.push_back({"lm_head.weight", false, h.vocab_size, h.dim});
  return out;
}

bool is_packed(const Header& h, const Block& block) noexcept { return h.version == 2 && block.columns > 0; }

std::uint64_t values_of(const Block& block) noexcept {
  return static_cast<std::uint64_t>(block.rows) * static_cast<std::uint64_t>(std::max<std::int64_t>(1, block.columns));
}

// Of one layer's. Version 2: codes, then a float32 scale a group.
std::uint64_t bytes_of(const Header& h, const Block& block) {
  const std::uint64_t values = values_of(block);
  return is_packed(h, block) ? values + values / static_cast<std::uint64_t>(h.group_size) * sizeof(float)
                             : values * sizeof(float);
}

std::uint64_t file_bytes(const Header& h) {
  std::uint64_t out = h.data_offset;
  for (const Block& block : blocks_of(h))
    out += bytes_of(h, block) * static_cast<std::uint64_t>(block.is_of_layers ? h.layers : 1);
  return out;
}

// Signed codes become halfbyte's, which are 128 more.
class OffsetCodes final : public UnitBytes {
 public:
  OffsetCodes(std::shared_ptr<const DataFile> file, std::uint64_t offset, std::int64_t columns, RowOrder order)
      : UnitBytes(static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(order.rows)),
        rows_(std::move(file), offset, static_cast<std::uint64_t>(columns), order),
        row_bytes_(static_cast<std::uint64_t>(columns)) {}

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override {
    rows_.read(first * row_bytes_, {out, count * row_bytes_});
    for (std::uint64_t i = 0; i < count * row_bytes_; ++i) out[i] ^= std::byte{0x80};
  }

 private:
  OrderedRows rows_;
  std::uint64_t row_bytes_;
};

std::vector<std::byte> bytes_of_shape(std::int64_t rows, std::int64_t columns) {
  const std::array<std::int64_t, 2> shape{rows, columns};
  const auto bytes = std::as_bytes(std::span(shape));
  return {bytes.begin(), bytes.end()};
}

class Llama2cTensors {
 public:
  Llama2cTensors(const fs::path& path, const Header& header, Checkpoint& checkpoint)
      : header_(header), checkpoint_(checkpoint), translation_(checkpoint, path) {
    checkpoint.data_files.push_back(std::make_shared<InputFile>(path));
    checkpoint.data_offsets.push_back(header.data_offset);
  }

  std::vector<TensorRecord> run() {
    std::uint64_t offset = header_.data_offset;
    for (const Block& block : blocks_of(header_)) {
      const std::int64_t count = block.is_of_layers ? header_.layers : 1;
      for (std::int64_t layer = 0; layer < count; ++layer) {
        if (*block.name) add(block, name_of(block, layer), offset);
        offset += bytes_of(header_, block);
      }
    }
    translation_.finish();
    return std::move(records_);
  }

 private:
  static std::string name_of(const Block& block, std::int64_t layer) {
    return block.is_of_layers ? "model.layers." + std::to_string(layer) + "." + block.name : block.name;
  }

  void add(const Block& block, const std::string& name, std::uint64_t offset) {
    if (is_packed(header_, block)) return add_packed(block, name, offset);
    std::vector<std::int64_t> shape{block.rows};
    if (block.columns > 0) shape.push_back(block.columns);
    if (block.heads == 0) {
      checkpoint_.tensors.push_back({name, Dtype::kFloat32, shape, 0, offset, bytes_of(header_, block)});
      return;
    }
    translation_.add(name, Dtype::kFloat32, shape,
                     std::make_unique<OrderedRows>(checkpoint_.data_files[0], offset,
                                                   static_cast<std::uint64_t>(block.columns) * sizeof(float),
                                                   RowOrder{block.rows, block.heads}));
  }

  void add_packed(const Block& block, const std::string& name, std::uint64_t offset) {
    const auto& file = checkpoint_.data_files[0];
    const RowOrder order{block.rows, block.heads};
    TensorRecord record;
    record.name = name;
    record.shape = {block.rows, block.columns};
    record.scheme = &scheme(SchemeId::kSymInt8);
    record.group_size = header_.group_size;
    record.scale_dtype = Dtype::kFloat32;
    record.parts = packed_part_names(record);
    const std::int64_t groups = block.columns / header_.group_size;
    translation_.add(record.parts[Part::kCodes], Dtype::kInt32, {block.rows, block.columns / 4},
                     std::make_unique<OffsetCodes>(file, offset, block.columns, order));
    translation_.add(record.parts[Part::kScale], Dtype::kFloat32, {block.rows, groups},
                     std::make_unique<OrderedRows>(file, offset + values_of(block),
                                                   static_cast<std::uint64_t>(groups) * sizeof(float), order));
    translation_.add(record.parts[Part::kShape], Dtype::kInt64, {2},
                     std::make_unique<ConstantBytes>(bytes_of_shape(block.rows, block.columns)));
    record.size_bytes = bytes_of(header_, block) + 2 * sizeof(std::int64_t);
    records_.push_back(std::move(record));
  }

  const Header& header_;
  Checkpoint& checkpoint_;
  Translation translation_;
  std::vector<TensorRecord> records_;
};

// What llama2.c's run.c computes with.
nlohmann::ordered_json config_of(const Header& h) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", h.dim},
          {"intermediate_size", h.hidden_dim},
          {"num_hidden_layers", h.layers},
          {"num_attention_heads", h.heads},
          {"num_key_value_heads", h.kv_heads},
          {"vocab_size", h.vocab_size},
          {"max_position_embeddings", h.context},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"tie_word_embeddings", h.has_shared_classifier},
          {"torch_dtype", "float32"}};
}

// Groups of version 2 go through the whole tensor; halfbyte's end with the row.
void check_version(const Header& h, const fs::path& path) {
  const std::string where = printable_path(path) + ": ";
  if (h.version < 0 || h.version > 2)
    throw Error(ErrorCode::kUnsupported,
                where + "version " + std::to_string(h.version) + " of llama2.c's format; 0 to 2 are read");
  if (h.version != 2) return;
  if (h.group_size < 1 || h.dim % h.group_size != 0 || h.hidden_dim % h.group_size != 0 || h.dim % 4 != 0 ||
      h.hidden_dim % 4 != 0)
    throw Error(ErrorCode::kUnsupported, where + "groups of " + std::to_string(h.group_size) +
                                             " weights, which rows of " + std::to_string(h.dim) + " and " +
                                             std::to_string(h.hidden_dim) + " do not end with");
}

}  // namespace

bool is_llama2c(const InputFile& file) {
  const auto header = read_header(file);
  if (!header) return false;
  return read_at<std::uint32_t>(file, 0) == kMagic || file_bytes(*header) == file.size_bytes();
}

std::vector<std::string> pick_llama2c(const fs::path& directory, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (name.ends_with(".bin") && is_llama2c(InputFile(directory / name))) out.push_back(name);
  }
  if (out.size() > 1)
    throw Error(ErrorCode::kUnsupported, printable_path(directory) + ": has " + std::to_string(out.size()) +
                                             " checkpoints of llama2.c; give one of the files");
  return out;
}

std::vector<TensorRecord> open_llama2c(std::span<const fs::path> paths, Checkpoint& checkpoint) {
  const InputFile file(paths[0]);
  const auto header = read_header(file);
  if (!header) throw Error(ErrorCode::kCorrupt, printable_path(paths[0]) + ": changed while it was opened");
  check_version(*header, paths[0]);
  if (const std::uint64_t wanted = file_bytes(*header); wanted != file.size_bytes()) {
    throw Error(ErrorCode::kCorrupt, printable_path(paths[0]) + ": has " + std::to_string(file.size_bytes()) +
                                         " bytes; its header speaks of " + std::to_string(wanted) +
                                         "; download it again");
  }
  checkpoint.config = config_of(*header);
  add_llama2c_tokenizer(checkpoint.directory, static_cast<std::size_t>(header->vocab_size), checkpoint);
  return Llama2cTensors(paths[0], *header, checkpoint).run();
}

}  // namespace halfbyte::files

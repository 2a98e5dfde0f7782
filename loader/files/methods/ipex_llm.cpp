#include "loader/files/methods/ipex_llm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "loader/files/derive.h"
#include "loader/files/methods/block_bytes.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/row_bytes.h"
#include "loader/files/translation.h"

namespace halfbyte::files {
namespace {

using models::ExpectedTensor;
using models::Role;

constexpr std::int64_t kBlock = 64;                         // weights, of one row
constexpr std::int64_t kMaxValues = std::int64_t{1} << 50;  // of one tensor, so that no sum of sizes overflows

float half_at(const std::byte* at) {
  float out = 0;
  quant::convert(at, Dtype::kFloat16, reinterpret_cast<std::byte*>(&out), Dtype::kFloat32, 1);
  return out;
}

// Codes of weight j and j + 32 lie in byte j; in halfbyte's, those of neighbours do.
// Low half first, to low half first.
template <std::size_t kAt>
void low_first_codes(const std::byte* block, std::byte* out) {
  constexpr std::byte kLow{0x0f}, kHigh{0xf0};
  const std::byte* codes = block + kAt;
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = (codes[2 * i] & kLow) | (codes[2 * i + 1] << 4);
    out[16 + i] = (codes[2 * i] >> 4) | (codes[2 * i + 1] & kHigh);
  }
}

// High half first, to high half first (bitsandbytes).
void high_first_codes(const std::byte* block, std::byte* out) {
  constexpr std::byte kLow{0x0f}, kHigh{0xf0};
  const std::byte* codes = block + 2;
  for (std::size_t i = 0; i < 16; ++i) {
    out[i] = (codes[2 * i] & kHigh) | (codes[2 * i + 1] >> 4);
    out[16 + i] = (codes[2 * i] << 4) | (codes[2 * i + 1] & kLow);
  }
}

void offset_codes(const std::byte* block, std::byte* out) {
  for (std::size_t i = 0; i < kBlock; ++i) out[i] = block[4 + i] ^ std::byte{0x80};
}

template <std::size_t kBytes>
void first_bytes(const std::byte* block, std::byte* out) {
  std::memcpy(out, block, kBytes);
}

void second_half(const std::byte* block, std::byte* out) { std::memcpy(out, block + 2, 2); }

void widened_scale(const std::byte* block, std::byte* out) {
  const float scale = half_at(block);
  std::memcpy(out, &scale, sizeof scale);
}

void asym_values(const std::byte* block, std::byte* out) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::byte both = block[4 + i % 32];
    const auto code = std::to_integer<int>(i < 32 ? both & std::byte{0x0f} : both >> 4);
    const float value = static_cast<float>(code) * scale + minimum;
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

// How one type of ipex-llm's lies in the file. Source: reference files of ipex-llm 2.2.0, compared with their
// originals.
struct BlockType {
  std::string_view name;
  std::uint64_t block_bytes;
  SchemeId scheme;
  Dtype scale_dtype;
  BlockPart codes;
  BlockPart scale;
  BlockPart offset = {};  // of schemes that have one
  BlockPart values = {};  // as float32, for an embedding; none: it is refused
};

constexpr auto kTypes = std::to_array<BlockType>({
    {.name = "sym_int4",
     .block_bytes = 34,
     .scheme = SchemeId::kSymInt4,
     .scale_dtype = Dtype::kFloat16,
     .codes = {32, low_first_codes<2>},
     .scale = {2, first_bytes<2>}},
    {.name = "nf4",
     .block_bytes = 34,
     .scheme = SchemeId::kNf4,
     .scale_dtype = Dtype::kFloat32,
     .codes = {32, high_first_codes},
     .scale = {4, widened_scale}},
    {.name = "fp4",
     .block_bytes = 34,
     .scheme = SchemeId::kFp4E2m1,
     .scale_dtype = Dtype::kFloat16,
     .codes = {32, low_first_codes<2>},
     .scale = {2, first_bytes<2>}},
    {.name = "sym_int8",
     .block_bytes = 68,
     .scheme = SchemeId::kSymInt8,
     .scale_dtype = Dtype::kFloat32,
     .codes = {64, offset_codes},
     .scale = {4, first_bytes<4>}},
    {.name = "asym_int4",
     .block_bytes = 36,
     .scheme = SchemeId::kAffineInt4,
     .scale_dtype = Dtype::kFloat16,
     .codes = {32, low_first_codes<4>},
     .scale = {2, first_bytes<2>},
     .offset = {2, second_half},
     .values = {256, asym_values}},
});
constexpr std::string_view kMixedHead = "sym_int8";  // mixed_precision=True keeps the head so
// Of these "low bit" types nothing is packed.
constexpr auto kDenseTypes = std::to_array<std::string_view>({"fp16", "bf16", "fp32"});

const BlockType* find_type(std::string_view name) {
  const auto row = std::ranges::find(kTypes, name, &BlockType::name);
  return row == kTypes.end() ? nullptr : &*row;
}

// Projections that ipex-llm's optimisations stack, all rows of one after all rows of another.
struct Fusion {
  std::string_view whole;
  std::vector<std::string_view> parts;
};

const std::vector<Fusion>& fusions() {
  static const std::vector<Fusion> rows{{".qkv_proj.", {".q_proj.", ".k_proj.", ".v_proj."}},
                                        {".gate_up_proj.", {".gate_proj.", ".up_proj."}}};
  return rows;
}

// 0: more than any file holds.
std::int64_t values_of(const ExpectedTensor& tensor) {
  std::int64_t out = 1;
  for (const std::int64_t length : tensor.shape) {
    if (__builtin_mul_overflow(out, length, &out) || out > kMaxValues) return 0;
  }
  return out;
}

template <class Range>
std::unique_ptr<TensorBytes> constant(const Range& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_unique<ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

// Source: bitsandbytes, functional.py, QuantState.as_dict.
std::string quant_state(const TensorRecord& record) {
  return nlohmann::ordered_json{{"quant_type", record.scheme->name},
                                {"blocksize", record.group_size},
                                {"dtype", "float32"},
                                {"shape", record.shape}}
      .dump();
}

class IpexLlmTensors {
 public:
  IpexLlmTensors(Checkpoint& checkpoint, const std::string& where, const BlockType& type)
      : checkpoint_(checkpoint), where_(where), type_(type) {
    if (!checkpoint.architecture)
      fail_unsupported(where, "ipex-llm's " + std::string(type.name) +
                                  " of a family that is not known, whose tensors' shapes nothing says,");
    models::ModelConfig config = checkpoint.model_config();
    for (ExpectedTensor& tensor : models::Architecture::expected(config)) {
      std::string name = tensor.name;
      expected_.emplace(std::move(name), std::move(tensor));
    }
  }

  std::vector<TensorRecord> run() {
    const std::vector<StoredTensor> tensors = checkpoint_.tensors;  // by file; finish() changes the original
    for (std::size_t i = 0; i < tensors.size();) {
      const std::size_t file = tensors[i].file;
      translation_.emplace(checkpoint_, checkpoint_.data_files[file]->path());
      for (; i < tensors.size() && tensors[i].file == file; ++i) read(tensors[i]);
      translation_->finish();
    }
    add_notes();
    std::vector<TensorRecord> out = with_dense_records(checkpoint_, std::move(packed_));
    for (TensorRecord& record : out) record.original_dtype.reset();
    return out;
  }

 private:
  // The tensors of the family that one stored tensor holds; none: it is not one of the family's.
  std::vector<const ExpectedTensor*> parts_of(const std::string& name) const {
    if (const auto whole = expected_.find(name); whole != expected_.end()) return {&whole->second};
    for (const Fusion& fusion : fusions()) {
      const auto at = name.find(fusion.whole);
      if (at == std::string::npos) continue;
      std::vector<const ExpectedTensor*> out;
      for (const std::string_view part : fusion.parts) {
        std::string part_name = name;
        const auto found = expected_.find(part_name.replace(at, fusion.whole.size(), part));
        if (found != expected_.end()) out.push_back(&found->second);
      }
      if (out.size() == fusion.parts.size()) return out;
    }
    return {};
  }

  void read(const StoredTensor& tensor) {
    const std::vector<const ExpectedTensor*> parts = parts_of(tensor.name);
    fused_ += parts.size() > 1;
    const bool is_packed =
        tensor.shape.size() == 1 && (parts.empty() ? tensor.dtype == Dtype::kUint8 : parts[0]->shape.size() == 2);
    if (is_packed) return read_packed(tensor, parts);
    if (parts.size() > 1) split_dense(tensor, parts);
  }

  void split_dense(const StoredTensor& tensor, const std::vector<const ExpectedTensor*>& parts) {
    translation_->consume(tensor);
    std::uint64_t offset = tensor.offset;
    std::int64_t values = 0;
    for (const ExpectedTensor* part : parts) values += values_of(*part);
    if (static_cast<std::uint64_t>(values * size_bytes(tensor.dtype)) != tensor.size_bytes)
      fail_size(tensor, *parts[0]);
    for (const ExpectedTensor* part : parts) {
      const std::int64_t bytes = values_of(*part) * size_bytes(tensor.dtype);
      translation_->add(part->name, tensor.dtype, part->shape,
                        std::make_unique<OrderedRows>(checkpoint_.data_files[tensor.file], offset, 1, RowOrder{bytes}));
      offset += static_cast<std::uint64_t>(bytes);
    }
  }

  void read_packed(const StoredTensor& tensor, const std::vector<const ExpectedTensor*>& parts) {
    if (parts.empty())
      fail_unsupported(where_ + ": tensor " + in_quotes(tensor.name),
                       "a packed tensor whose shape nothing says, since the family has none of this name,");
    const BlockType& type = type_of(tensor, parts);
    translation_->consume(tensor);
    std::uint64_t offset = tensor.offset;
    for (const ExpectedTensor* part : parts) {
      const auto blocks = static_cast<std::uint64_t>(values_of(*part) / kBlock);
      // An embedding is read row by row, and not computed on.
      if (part->role != Role::kEmbedding) {
        add_packed(*part, type, tensor.file, offset, blocks);
      } else {
        add_dense(*part, type, tensor.file, offset, blocks);
      }
      offset += blocks * type.block_bytes;
    }
  }

  // The one that the size bears out: of the configuration, or of a head in mixed precision.
  const BlockType& type_of(const StoredTensor& tensor, const std::vector<const ExpectedTensor*>& parts) const {
    std::uint64_t blocks = 0;
    for (const ExpectedTensor* part : parts) {
      if (part->shape.back() % kBlock != 0) fail_size(tensor, *part);
      blocks += static_cast<std::uint64_t>(values_of(*part) / kBlock);
    }
    for (const BlockType* type : {&type_, find_type(kMixedHead)}) {
      if (tensor.size_bytes == blocks * type->block_bytes) return *type;
    }
    fail_size(tensor, *parts[0]);
  }

  [[noreturn]] void fail_size(const StoredTensor& tensor, const ExpectedTensor& part) const {
    throw Error(ErrorCode::kCorrupt,
                where_ + ": tensor " + in_quotes(tensor.name) + " has " + std::to_string(tensor.size_bytes) +
                    " bytes, which are not those of " + printable(part.shape) + " in " + std::string(type_.name) +
                    "; the XPU's layout is another, save for the CPU, or use the original checkpoint");
  }

  std::unique_ptr<TensorBytes> blocks_of(std::size_t file, std::uint64_t offset, std::uint64_t blocks,
                                         const BlockType& type, const BlockPart& part) const {
    return std::make_unique<BlockBytes>(checkpoint_.data_files[file], offset, type.block_bytes, blocks, part);
  }

  void add_packed(const ExpectedTensor& tensor, const BlockType& type, std::size_t file, std::uint64_t offset,
                  std::uint64_t blocks) {
    TensorRecord record;
    record.name = tensor.name;
    record.shape = tensor.shape;
    record.scheme = &scheme(type.scheme);
    record.group_size = kBlock;
    record.scale_dtype = type.scale_dtype;
    record.parts = packed_part_names(record);
    for (PartSpec& spec : packed_parts(record)) {
      std::unique_ptr<TensorBytes> bytes;
      if (spec.part == Part::kCodes) bytes = blocks_of(file, offset, blocks, type, type.codes);
      if (spec.part == Part::kScale) bytes = blocks_of(file, offset, blocks, type, type.scale);
      if (spec.part == Part::kOffset) bytes = blocks_of(file, offset, blocks, type, type.offset);
      if (spec.part == Part::kShape) bytes = constant(tensor.shape);
      if (spec.part == Part::kCodebook) bytes = constant(*record.scheme->codebook);
      if (spec.part == Part::kState) bytes = constant(quant_state(record));
      if (spec.shape == std::vector{kAnyLength}) spec.shape = {static_cast<std::int64_t>(bytes->size_bytes())};
      record.size_bytes += bytes->size_bytes();
      translation_->add(record.parts[spec.part], spec.dtype, spec.shape, std::move(bytes));
    }
    packed_.push_back(std::move(record));
  }

  void add_dense(const ExpectedTensor& tensor, const BlockType& type, std::size_t file, std::uint64_t offset,
                 std::uint64_t blocks) {
    if (!type.values.make)
      fail_unsupported(where_ + ": tensor " + in_quotes(tensor.name), "an embedding in " + std::string(type.name));
    ++computed_;
    translation_->add(tensor.name, Dtype::kFloat32, tensor.shape, blocks_of(file, offset, blocks, type, type.values));
  }

  void add_notes() {
    std::vector<std::string>& notes = checkpoint_.notes;
    notes.push_back("ipex-llm did not record what the tensors were: their original dtype is not known");
    if (computed_ > 0)
      notes.push_back("embeddings in ipex-llm's " + std::string(type_.name) + ", " + std::to_string(computed_) +
                      " of them, are read as float32 with the same values");
    if (fused_ > 0)
      notes.push_back("tensors that ipex-llm stacked (qkv_proj, gate_up_proj), " + std::to_string(fused_) +
                      " of them, are read as those they are made of");
  }

  Checkpoint& checkpoint_;
  const std::string& where_;
  const BlockType& type_;
  std::map<std::string, ExpectedTensor, std::less<>> expected_;
  std::optional<Translation> translation_;
  std::vector<TensorRecord> packed_;
  std::int64_t computed_ = 0, fused_ = 0;
};

constexpr const char* kKey = "bigdl_transformers_low_bit";
constexpr std::string_view kSideFile = "bigdl_config.json";

bool has_key(const nlohmann::json& json) { return json.is_object() && json.contains(kKey); }

}  // namespace

std::optional<Declaration> find_ipex_llm(const Checkpoint& checkpoint) {
  Declaration out{.method = kIpexLlm,
                  .json = models::HeldJson(*checkpoint.config),
                  .where = printable_path(checkpoint.directory / "config.json"),
                  .key = kKey};
  if (has_key(*out.json)) return out;
  out.json = read_beside(checkpoint, kSideFile);
  out.where = printable_path(checkpoint.directory / kSideFile);
  return has_key(*out.json) ? std::optional(std::move(out)) : std::nullopt;
}

std::vector<TensorRecord> read_ipex_llm(Checkpoint& checkpoint, const JsonField& config) {
  const std::string& low_bit = config.string();
  if (std::ranges::find(kDenseTypes, low_bit) != kDenseTypes.end()) return with_dense_records(checkpoint, {});
  const BlockType* type = find_type(low_bit);
  if (!type) fail_unsupported(config.path(), "ipex-llm's " + in_quotes(low_bit));
  return IpexLlmTensors(checkpoint, config.path(), *type).run();
}

}  // namespace halfbyte::files

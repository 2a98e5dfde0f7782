#include "loader/files/methods/float4.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/matrix_shape.h"
#include "loader/files/methods/byte_table.h"
#include "loader/files/methods/foreign_tensors.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::int64_t kMxGroup = 32, kNvGroup = 16;
constexpr std::int64_t kMxBlockBytes = kMxGroup / 2;

struct BlockNames {
  std::string_view blocks, scales;  // suffixes
};
constexpr auto kBlockNames = std::to_array<BlockNames>({{"_blocks", "_scales"}, {".blocks", ".scales"}});

// What belongs to activations, which are not quantised here.
constexpr auto kActivationParts = std::to_array<std::string_view>(
    {".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale", ".k_scale", ".v_scale", ".q_scale"});
// What changes weights or activations in ways that are not read.
constexpr auto kRefusedParts =
    std::to_array<std::string_view>({".pre_quant_scale", ".weight_zero_point", ".weight_g_idx"});

// Each byte a power of two, 255 NaN. bfloat16 has the same exponents; the least one is subnormal there.
std::vector<std::byte> e8m0_as_bfloat16() {
  std::vector<std::byte> out(256 * sizeof(std::uint16_t));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto bits = static_cast<std::uint16_t>(byte == 0 ? 0x0040 : byte == 255 ? 0x7fc0 : byte << 7);
    std::memcpy(out.data() + byte * sizeof bits, &bits, sizeof bits);
  }
  return out;
}

// Sign, four bits of exponent with a bias of 7, three of mantissa; no infinities.
float e4m3_value(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15);
  const auto mantissa = static_cast<float>(byte & 7);
  if ((byte & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

template <class Combine>
std::vector<std::byte> e4m3_as_float32(Combine combine) {
  std::vector<std::byte> out(256 * sizeof(float));
  for (unsigned byte = 0; byte < 256; ++byte) {
    const float value = combine(e4m3_value(byte));
    std::memcpy(out.data() + byte * sizeof value, &value, sizeof value);
  }
  return out;
}

struct ScaleKind {
  std::int64_t group_size;
  Dtype dtype;                   // of the scales that are made
  std::vector<std::byte> table;  // ByteTable's
};

ScaleKind mx_scales() { return {kMxGroup, Dtype::kBfloat16, e8m0_as_bfloat16()}; }

bool is_e8m0(Dtype dtype) { return dtype == Dtype::kUint8 || dtype == Dtype::kFloat8E8m0; }

class Float4Tensors {
 public:
  explicit Float4Tensors(Checkpoint& checkpoint) : checkpoint_(checkpoint), changes_(checkpoint) {}

  // Of a weight `name` whose codes are bytes of two, as many to a row as its shape says.
  void add(const std::string& name, const StoredTensor& codes, const StoredTensor& scales,
           const std::vector<std::int64_t>& shape, const ScaleKind& kind) {
    check(codes, scales, shape, kind.group_size);
    TensorRecord record;
    record.name = name;
    record.shape = shape;
    record.scheme = &scheme(SchemeId::kFp4E2m1);
    record.group_size = kind.group_size;
    record.scale_dtype = kind.dtype;
    record.parts = packed_part_names(record);
    Translation& translation = changes_.beside(codes);
    translation.consume(scales);
    for (const PartSpec& spec : packed_parts(record)) {
      if (spec.part == Part::kCodes) {
        changes_.view(codes, record.parts[spec.part], spec.dtype, spec.shape);
        record.size_bytes += codes.size_bytes;
        continue;
      }
      std::unique_ptr<TensorBytes> bytes;
      if (spec.part == Part::kScale)
        bytes = std::make_unique<ByteTable>(ByteRange(checkpoint_, scales), scales.size_bytes, kind.table);
      if (spec.part == Part::kShape) bytes = shape_bytes(shape);
      record.size_bytes += bytes->size_bytes();
      translation.add(record.parts[spec.part], spec.dtype, spec.shape, std::move(bytes));
    }
    records_.push_back(std::move(record));
  }

  // One that says nothing beyond what was read already.
  void consume(const StoredTensor& tensor) { changes_.beside(tensor).consume(tensor); }

  // Takes what belongs to activations. Errors: kUnsupported.
  void take_others() {
    const auto is_one_of = [](const StoredTensor& tensor, std::span<const std::string_view> suffixes) {
      return std::ranges::any_of(suffixes, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); });
    };
    for (const StoredTensor& tensor : checkpoint_.tensors) {
      if (is_one_of(tensor, kRefusedParts)) fail_unsupported(place_of(checkpoint_, tensor), "such a part of a weight");
      if (tensor.name.ends_with(".weight") && tensor.dtype == Dtype::kFloat8E4m3)
        fail_unsupported(place_of(checkpoint_, tensor), "a weight in 8-bit floats beside 4-bit ones");
      if (!is_one_of(tensor, kActivationParts)) continue;
      consume(tensor);
      ++activation_parts_;
    }
  }

  std::vector<TensorRecord> finish() {
    changes_.finish();
    if (activation_parts_ > 0)
      checkpoint_.notes.push_back(counted_are(activation_parts_) +
                                  " left out: they scale activations or the KV cache, which are not quantised here");
    return with_dense_records(checkpoint_, std::move(records_));
  }

 private:
  void check(const StoredTensor& codes, const StoredTensor& scales, const std::vector<std::int64_t>& shape,
             std::int64_t group_size) const {
    const std::string where = place_of(checkpoint_, codes);
    const bool is_matrix = shape.size() == 2 || shape.size() == 3;
    if (codes.dtype != Dtype::kUint8 || !is_matrix || shape.back() < 1) {
      throw Error(ErrorCode::kCorrupt, where + ": is " + std::string(name(codes.dtype)) + " " + printable(codes.shape) +
                                           ", wanted bytes of two codes, in rows");
    }
    std::vector<std::int64_t> wanted = shape;
    wanted.back() /= group_size;
    if (scales.shape == wanted && shape.back() % group_size == 0) return;
    throw Error(ErrorCode::kCorrupt, where + ": shape " + printable(shape) + " in groups of " +
                                         std::to_string(group_size) + " has no scales of shape " +
                                         printable(scales.shape) + ", as " + in_quotes(scales.name) + " is");
  }

  static std::unique_ptr<TensorBytes> shape_bytes(const std::vector<std::int64_t>& shape) {
    const auto bytes = std::as_bytes(std::span(shape));
    return std::make_unique<ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  Checkpoint& checkpoint_;
  ForeignTensors changes_;
  std::vector<TensorRecord> records_;
  std::int64_t activation_parts_ = 0;
};

// The shape of a weight of which each element along the last axis holds so many values. What no file holds becomes 0.
std::vector<std::int64_t> widened(std::vector<std::int64_t> shape, std::int64_t values) {
  if (!shape.empty()) shape.back() = shape.back() > (std::int64_t{1} << 50) ? 0 : shape.back() * values;
  return shape;
}

// A scale of the whole tensor.
float scalar(const Checkpoint& checkpoint, const std::string& name, const std::string& where) {
  float out = 0;
  const StoredTensor& tensor = part_of(checkpoint, name, where, Dtype::kFloat32, 1);
  read_stored(checkpoint, tensor, 0, std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

// A weight's scales, whose bytes are of one of these dtypes. Errors: kCorrupt.
const StoredTensor& scales_of(const Checkpoint& checkpoint, const std::string& name, const std::string& where,
                              bool is_mx) {
  const StoredTensor& out = part_of(checkpoint, name, where);
  if (is_mx ? is_e8m0(out.dtype) : out.dtype == Dtype::kFloat8E4m3) return out;
  throw Error(ErrorCode::kCorrupt, where + ": its part " + in_quotes(name) + " is " +
                                       std::string(halfbyte::name(out.dtype)) + ", wanted " +
                                       (is_mx ? "uint8" : "float8_e4m3"));
}

const BlockNames* block_names(const StoredTensor& tensor) {
  const auto row = std::ranges::find_if(kBlockNames, [&](const BlockNames& names) {
    return tensor.name.size() > names.blocks.size() && tensor.name.ends_with(names.blocks);
  });
  return row == kBlockNames.end() ? nullptr : &*row;
}

std::string owner_of(const StoredTensor& tensor, std::string_view suffix) {
  return tensor.name.substr(0, tensor.name.size() - suffix.size());
}

// Blocks of 16 bytes, one scale each.
bool are_mx_blocks(const StoredTensor& blocks) {
  return blocks.dtype == Dtype::kUint8 && blocks.shape.size() >= 3 && blocks.shape.back() == kMxBlockBytes;
}

void add_mxfp4(const Checkpoint& checkpoint, const StoredTensor& blocks, const BlockNames& names,
               Float4Tensors& tensors) {
  const std::string where = place_of(checkpoint, blocks), owner = owner_of(blocks, names.blocks);
  const StoredTensor& scales = scales_of(checkpoint, owner + std::string(names.scales), where, true);
  if (!are_mx_blocks(blocks)) {
    throw Error(ErrorCode::kCorrupt, where + ": is " + std::string(name(blocks.dtype)) + " " + printable(blocks.shape) +
                                         ", wanted uint8 [..., 16], a block of 32 codes each");
  }
  std::vector<std::int64_t> shape = blocks.shape;
  shape.pop_back();
  tensors.add(owner, blocks, scales, widened(std::move(shape), kMxGroup), mx_scales());
}

constexpr std::string_view kScale2 = "_scale_2";

void add_modelopt(const Checkpoint& checkpoint, const StoredTensor& scale_2, Float4Tensors& tensors) {
  const std::string where = place_of(checkpoint, scale_2), name = owner_of(scale_2, kScale2);
  const StoredTensor& codes = part_of(checkpoint, name, where);
  const float factor = scalar(checkpoint, scale_2.name, where);
  tensors.consume(scale_2);
  tensors.add(name, codes, scales_of(checkpoint, name + "_scale", where, false), widened(codes.shape, 2),
              {kNvGroup, Dtype::kFloat32, e4m3_as_float32([&](float scale) { return scale * factor; })});
}

constexpr std::string_view kPacked = "_packed";

void add_compressed(const Checkpoint& checkpoint, const StoredTensor& codes, Float4Tensors& tensors) {
  const std::string where = place_of(checkpoint, codes), name = owner_of(codes, kPacked);
  const StoredTensor* global = checkpoint.find(name + "_global_scale");
  const StoredTensor& scales = scales_of(checkpoint, name + "_scale", where, !global);
  if (!global) return tensors.add(name, codes, scales, widened(codes.shape, 2), mx_scales());
  const float divisor = scalar(checkpoint, global->name, where);
  tensors.consume(*global);
  tensors.add(name, codes, scales, widened(codes.shape, 2),
              {kNvGroup, Dtype::kFloat32, e4m3_as_float32([&](float scale) { return scale / divisor; })});
}

constexpr auto kFloat4Formats = std::to_array<std::string_view>({"nvfp4-pack-quantized", "mxfp4-pack-quantized"});

bool is_float4_format(const JsonField& format) {
  return std::ranges::find(kFloat4Formats, format.string()) != kFloat4Formats.end();
}

void refuse_set(const JsonField& config, const char* key) {
  const auto field = config.find(key);
  if (field && !field->json().empty() && field->json() != nlohmann::json(false))
    fail_unsupported(field->path(), "this setting");
}

constexpr std::string_view kModeloptFile = "hf_quant_config.json";

void check_algorithm(const JsonField& config) {
  const JsonField algorithm = config.at("quant_algo");
  if (algorithm.string() != "NVFP4" && algorithm.string() != "W4A16_NVFP4")
    fail_unsupported(algorithm.path(), "ModelOpt's " + in_quotes(algorithm.string()));
}

}  // namespace

std::vector<TensorRecord> read_mxfp4(Checkpoint& checkpoint, const JsonField&) {
  Float4Tensors tensors(checkpoint);
  std::int64_t stacks = 0;
  for (const StoredTensor& tensor : checkpoint.tensors) {
    const BlockNames* names = block_names(tensor);
    if (!names || tensor.dtype != Dtype::kUint8) continue;
    add_mxfp4(checkpoint, tensor, *names, tensors);
    stacks += tensor.shape.size() == 4;
  }
  std::vector<TensorRecord> out = tensors.finish();
  if (stacks > 0)
    checkpoint.notes.push_back(counted_are(stacks) +
                               " stacked experts, of shape (experts, out_features, in_features) as in the file; "
                               "transformers swaps the last two when it dequantises them");
  return out;
}

bool has_mxfp4_blocks(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors, [&](const StoredTensor& tensor) {
    const BlockNames* names = block_names(tensor);
    if (!names || !are_mx_blocks(tensor)) return false;
    const StoredTensor* scales = checkpoint.find(owner_of(tensor, names->blocks) + std::string(names->scales));
    return scales && is_e8m0(scales->dtype) &&
           std::ranges::equal(scales->shape, std::span(tensor.shape).first(tensor.shape.size() - 1));
  });
}

std::vector<TensorRecord> read_modelopt(Checkpoint& checkpoint, const JsonField& config) {
  check_algorithm(config);
  Float4Tensors tensors(checkpoint);
  tensors.take_others();
  for (const StoredTensor& tensor : checkpoint.tensors) {
    if (tensor.name.ends_with(kScale2)) add_modelopt(checkpoint, tensor, tensors);
  }
  return tensors.finish();
}

std::optional<Declaration> find_modelopt_side_file(const Checkpoint& checkpoint) {
  if (!checkpoint.has_config_file) return std::nullopt;  // of a lone file, it would be another model's
  Declaration out{.method = kModelopt,
                  .json = models::HeldJson(read_beside(checkpoint, kModeloptFile)),
                  .where = printable_path(checkpoint.directory / kModeloptFile),
                  .key = "quantization"};
  if (out.json->is_null()) return std::nullopt;
  if (!JsonField(*out.json, out.where).at(out.key).find("quant_algo")) return std::nullopt;
  return out;
}

bool is_compressed_float4(const JsonField& config) {
  const auto format = config.find("format");
  if (format && is_float4_format(*format)) return true;
  const auto groups = config.find("config_groups");
  if (!format || format->string() != "mixed-precision" || !groups) return false;
  return std::ranges::all_of(groups->members(), [](const auto& group) {
    const auto own = group.second.find("format");
    return own && is_float4_format(*own);
  });
}

std::vector<TensorRecord> read_compressed_float4(Checkpoint& checkpoint, const JsonField& config) {
  for (const char* key : {"sparsity_config", "transform_config"}) refuse_set(config, key);
  Float4Tensors tensors(checkpoint);
  tensors.take_others();
  for (const StoredTensor& tensor : checkpoint.tensors) {
    if (tensor.name.ends_with(kPacked)) add_compressed(checkpoint, tensor, tensors);
  }
  return tensors.finish();
}

}  // namespace halfbyte::files

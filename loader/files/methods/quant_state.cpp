#include "loader/files/methods/quant_state.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "loader/files/methods/foreign_tensors.h"
#include "loader/files/methods/quantization.h"
#include "loader/files/printable.h"
#include "models/json/field.h"

namespace halfbyte::files {
namespace {

constexpr JsonLimits kLimits{.max_bytes = 4096, .max_depth = 4};
constexpr std::int64_t kMaxBlock = std::int64_t{1} << 30;
constexpr std::int64_t kMaxValues = std::int64_t{1} << 50;  // so that no sum of sizes overflows

std::string read_bytes(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  if (tensor.dtype != Dtype::kUint8 || tensor.size_bytes > kLimits.max_bytes) {
    throw Error(ErrorCode::kCorrupt, place_of(checkpoint, tensor) + ": is " + std::string(name(tensor.dtype)) + " " +
                                         printable(tensor.shape) + ", no quant_state (JSON of at most " +
                                         std::to_string(kLimits.max_bytes) + " bytes)");
  }
  std::string out(tensor.size_bytes, '\0');
  read_stored(checkpoint, tensor, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

Dtype weight_dtype(const JsonField& field) {
  const auto dtype = dtype_from_name(field.string());
  if (!dtype || !is_weight_dtype(*dtype)) field.fail_wanting("float32, float16 or bfloat16");
  return *dtype;
}

std::int64_t values_of(const JsonField& field, const std::vector<std::int64_t>& shape) {
  std::int64_t out = 1;
  for (const std::int64_t length : shape) {
    if (length == 0 || __builtin_mul_overflow(out, length, &out) || out > kMaxValues)
      field.fail_wanting("the shape of a tensor that is there");
  }
  return out;
}

float offset_of(const JsonField& field) {
  const double value = field.number();
  if (std::abs(value) > double{std::numeric_limits<float>::max()}) field.fail_wanting("a number that fits float32");
  return static_cast<float>(value);
}

}  // namespace

QuantState read_quant_state(const Checkpoint& checkpoint, const StoredTensor& tensor, const std::string& type) {
  const std::string where = place_of(checkpoint, tensor);
  const auto json = parse_json<nlohmann::json>(read_bytes(checkpoint, tensor), where, kLimits);
  const JsonField root(json, where);
  QuantState out;
  const JsonField quant_type = root.at("quant_type");
  out.scheme = find_scheme(quant_type.string());
  if (quant_type.string() != type || !out.scheme || out.scheme->layout != Layout::kBitsandbytes)
    fail_unsupported(quant_type.path(), in_quotes(quant_type.string()));
  out.block_size = root.at("blocksize").integer(1, kMaxBlock);
  out.dtype = weight_dtype(root.at("dtype"));
  const JsonField shape = root.at("shape");
  out.shape = shape.shape();
  out.values = values_of(shape, out.shape);
  if (const auto offset = root.find("nested_offset"))
    out.nested = {root.at("nested_blocksize").integer(1, kMaxBlock), offset_of(*offset)};
  return out;
}

std::string quant_state_text(const QuantState& state) {
  return nlohmann::ordered_json{{"quant_type", state.scheme->name},
                                {"blocksize", state.block_size},
                                {"dtype", name(state.dtype)},
                                {"shape", state.shape}}
      .dump();
}

}  // namespace halfbyte::files

#include "loader/files/methods/hqq.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/methods/foreign_tensors.h"
#include "loader/files/methods/hqq_values.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::string_view kCodes = ".W_q";
constexpr std::uint64_t kMaxTextBytes = 64, kMaxRank = 4;
constexpr std::int64_t kMaxValues = std::int64_t{1} << 50;  // so that no sum of sizes overflows

constexpr auto kPackings = std::to_array<HqqPacking>(
    {{"8bit_u8", 1, 1, 8}, {"4bit_u8", 1, 2, 4}, {"3bit_32", 4, 10, 3}, {"2bit_u8", 1, 4, 2}, {"1bit_u8", 1, 8, 1}});

// What HQQLinear.state_dict writes beside W_q, except the bias, which is a tensor like others.
constexpr auto kParts =
    std::to_array<const char*>({"nbits", "group_size", "shape", "scale", "zero", "axis", "packing", "unpack_view_dtype",
                                "view_as_float", "quant_scale", "quant_zero", "compute_dtype", "offload_meta",
                                "encoded_state_dict", "stores_quant_config", "channel_wise", "optimize", "round_zero"});

class HqqTensors {
 public:
  explicit HqqTensors(Checkpoint& checkpoint) : checkpoint_(checkpoint), changes_(checkpoint) {}

  std::vector<TensorRecord> run() {
    for (const StoredTensor& tensor : checkpoint_.tensors) {
      if (tensor.name.ends_with(kCodes)) read(tensor);
    }
    changes_.finish();
    if (!records_.empty())
      checkpoint_.notes.push_back(counted_are(std::ssize(records_)) +
                                  " HQQ's: read as float32 with the same values, since zero points that are no whole "
                                  "numbers fit no scheme here");
    return with_dense_records(checkpoint_, std::move(records_));
  }

 private:
  void read(const StoredTensor& codes) {
    module_ = codes.name.substr(0, codes.name.size() - kCodes.size()) + ".";
    where_ = place_of(checkpoint_, codes);
    refuse_quantized_scales();
    const std::vector<std::int64_t> shape = read_shape();
    const HqqWeight weight = describe(codes, shape);
    const auto bytes = static_cast<std::uint64_t>(weight.packed_rows() * weight.columns) * weight.packing->word_bytes;
    if (bytes != codes.size_bytes)
      fail("has " + std::to_string(codes.size_bytes) + " bytes; shape " + printable(shape) + " in " +
           std::string(weight.packing->name) + " has " + std::to_string(bytes));
    TensorRecord record;
    record.name = module_ + "weight";
    record.shape = shape;
    record.stored_dtype = Dtype::kFloat32;
    record.parts[Part::kCodes] = record.name;
    auto values = std::make_unique<HqqValues>(weight);
    record.size_bytes = values->size_bytes();
    Translation& translation = changes_.beside(codes);
    translation.consume(codes);
    for (const char* part : kParts) {
      if (const StoredTensor* found = checkpoint_.find(module_ + part)) translation.consume(*found);
    }
    translation.add(record.name, Dtype::kFloat32, shape, std::move(values));
    records_.push_back(std::move(record));
  }

  std::int64_t values_of(const std::vector<std::int64_t>& shape) const {
    std::int64_t out = 1;
    for (const std::int64_t length : shape) {
      if (length < 1 || __builtin_mul_overflow(out, length, &out) || out > kMaxValues)
        fail("says shape " + printable(shape) + ", which no tensor has");
    }
    return out;
  }

  HqqWeight describe(const StoredTensor& codes, const std::vector<std::int64_t>& shape) const {
    const std::int64_t values = values_of(shape);
    const StoredTensor &scale = floats("scale"), &zero = floats("zero");
    const std::int64_t count = count_of(scale);
    if (count < 1 || values % count != 0 || count_of(zero) != count)
      fail("has scales " + printable(scale.shape) + " and zeros " + printable(zero.shape) + ", which do not divide " +
           printable(shape));
    HqqWeight out{&packing(),
                  ByteRange(checkpoint_, codes),
                  ByteRange(checkpoint_, scale),
                  ByteRange(checkpoint_, zero),
                  scale.dtype,
                  zero.dtype,
                  shape.empty() ? 1 : shape.front(),
                  shape.empty() ? 1 : values / shape.front(),
                  HqqScales::kOne};
    if (count > 1) set_groups(values, count, out);
    return out;
  }

  void set_groups(std::int64_t values, std::int64_t count, HqqWeight& out) const {
    const std::int64_t group_size = values / count;
    if (checkpoint_.find(module_ + "group_size") && integer("group_size") != group_size)
      fail("says group_size " + std::to_string(integer("group_size")) + ", but has " + std::to_string(count) +
           " scales for " + std::to_string(values) + " values");
    const std::int64_t axis = integer("axis");
    if (axis != 0 && axis != 1) fail("says axis " + std::to_string(axis));
    out.kind = axis == 0 ? HqqScales::kPerColumn : HqqScales::kPerRow;
    out.rows = out.kind == HqqScales::kPerRow ? count : group_size;
    out.columns = values / out.rows;
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, where_ + ": " + problem);
  }

  const StoredTensor& part(const char* name) const { return part_of(checkpoint_, module_ + name, where_); }

  static std::int64_t count_of(const StoredTensor& tensor) {
    return static_cast<std::int64_t>(tensor.size_bytes) / size_bytes(tensor.dtype);
  }

  const StoredTensor& floats(const char* name) const {
    const StoredTensor& out = part(name);
    if (!is_weight_dtype(out.dtype))
      fail("its part " + in_quotes(out.name) + " is " + std::string(halfbyte::name(out.dtype)));
    return out;
  }

  // bool became uint8 there, int became int32.
  std::int64_t integer(const char* name) const {
    const StoredTensor& tensor = part(name);
    std::array<std::byte, 4> bytes{};
    const bool is_small = tensor.dtype == Dtype::kUint8 && tensor.size_bytes == 1;
    if (!is_small && (tensor.dtype != Dtype::kInt32 || tensor.size_bytes != bytes.size()))
      fail("its part " + in_quotes(tensor.name) + " is no single number");
    read_stored(checkpoint_, tensor, 0, std::span(bytes).first(tensor.size_bytes));
    std::int32_t out = 0;
    std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  }

  void refuse_quantized_scales() const {
    for (const char* name : {"quant_scale", "quant_zero"}) {
      if (checkpoint_.find(module_ + name) && integer(name) != 0)
        fail_unsupported(where_, "HQQ's " + in_quotes(name) + " (scales or zeros that are quantised themselves)");
    }
  }

  std::vector<std::int64_t> read_shape() const {
    const StoredTensor& tensor = part("shape");
    if (tensor.dtype != Dtype::kInt64 || tensor.size_bytes > kMaxRank * sizeof(std::int64_t))
      fail("its part " + in_quotes(tensor.name) + " is no shape");
    std::vector<std::int64_t> out(tensor.size_bytes / sizeof(std::int64_t));
    read_stored(checkpoint_, tensor, 0, std::as_writable_bytes(std::span(out)));
    return out;
  }

  const HqqPacking& packing() const {
    const StoredTensor& tensor = part("packing");
    std::string text(std::min(tensor.size_bytes, kMaxTextBytes), '\0');
    read_stored(checkpoint_, tensor, 0, std::as_writable_bytes(std::span(text)));
    const auto row = std::ranges::find(kPackings, text, &HqqPacking::name);
    if (row == kPackings.end() || tensor.size_bytes > kMaxTextBytes)
      fail_unsupported(where_, "HQQ's packing " + in_quotes(text));
    return *row;
  }

  Checkpoint& checkpoint_;
  ForeignTensors changes_;
  std::vector<TensorRecord> records_;
  std::string module_, where_;  // of the weight that is read
};

}  // namespace

std::vector<TensorRecord> read_hqq(Checkpoint& checkpoint, const JsonField&) { return HqqTensors(checkpoint).run(); }

bool has_hqq_weights(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors, [&](const StoredTensor& tensor) {
    if (!tensor.name.ends_with(kCodes)) return false;
    const std::string module = tensor.name.substr(0, tensor.name.size() - kCodes.size());
    return checkpoint.find(module + ".packing") && checkpoint.find(module + ".zero");
  });
}

}  // namespace halfbyte::files

#include "loader/files/methods/bitsandbytes.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/methods/block_scales.h"
#include "loader/files/methods/foreign_tensors.h"
#include "loader/files/methods/quant_state.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::string_view kStateInfix = ".quant_state.bitsandbytes__";
constexpr std::string_view kInt8Scales = ".SCB";  // of LLM.int8()
// Groups are whole words, so that rows are.
constexpr std::int64_t kGroupUnit = 8;

// The stored tensors of one packed weight, whose sizes have been checked.
struct PackedWeight {
  std::string name;
  QuantState state;
  const StoredTensor* codes;
  const StoredTensor* codebook;
  const StoredTensor* scales;
  const StoredTensor* nested_codebook;  // null without nested scales, as the next
  const StoredTensor* nested_scales;
  const StoredTensor* state_tensor;

  std::vector<const StoredTensor*> parts() const {
    std::vector<const StoredTensor*> out{codes, codebook, scales, nested_codebook, nested_scales, state_tensor};
    std::erase(out, nullptr);
    return out;
  }
};

// The values that share a scale when no group crosses a row: as many as divide both a block and a row. Nothing: rows
// are no whole words then, or the tensor is no matrix.
std::optional<std::int64_t> group_size(const QuantState& state) {
  if (state.shape.size() != 2 && state.shape.size() != 3) return std::nullopt;
  const std::int64_t out = std::gcd(state.shape.back(), state.block_size);
  if (out % kGroupUnit != 0) return std::nullopt;
  return out;
}

class BitsandbytesTensors {
 public:
  explicit BitsandbytesTensors(Checkpoint& checkpoint) : checkpoint_(checkpoint), changes_(checkpoint) {}

  std::vector<TensorRecord> run() {
    for (const StoredTensor& tensor : checkpoint_.tensors) {
      if (tensor.name.ends_with(kInt8Scales))
        fail_unsupported(place_of(checkpoint_, tensor), "a scale of bitsandbytes's 8-bit weights (LLM.int8)");
      if (const auto at = tensor.name.rfind(kStateInfix); at != std::string::npos)
        read(find_parts(tensor.name.substr(0, at), tensor, tensor.name.substr(at + kStateInfix.size())));
    }
    changes_.finish();
    add_notes();
    return with_dense_records(checkpoint_, std::move(records_));
  }

 private:
  PackedWeight find_parts(const std::string& name, const StoredTensor& state, const std::string& type) const {
    const std::string where = place_of(checkpoint_, state);
    PackedWeight out{name, read_quant_state(checkpoint_, state, type), {}, {}, {}, {}, {}, &state};
    const std::int64_t blocks = out.state.blocks();
    const auto part = [&](const std::string& suffix, Dtype dtype, std::int64_t values) {
      return &part_of(checkpoint_, name + suffix, where, dtype, values);
    };
    out.codes = &find_codes(name, out.state, where);
    out.codebook = part(".quant_map", Dtype::kFloat32, 16);
    out.scales = part(".absmax", out.state.nested ? Dtype::kUint8 : Dtype::kFloat32, blocks);
    if (const auto& nested = out.state.nested) {
      out.nested_codebook = part(".nested_quant_map", Dtype::kFloat32, 256);
      out.nested_scales =
          part(".nested_absmax", Dtype::kFloat32, (blocks + nested->block_size - 1) / nested->block_size);
    }
    return out;
  }

  // Two codes a byte, in whatever dtype the bytes are kept (bnb_4bit_quant_storage).
  const StoredTensor& find_codes(const std::string& name, const QuantState& state, const std::string& where) const {
    const StoredTensor& out = part_of(checkpoint_, name, where);
    if (static_cast<std::int64_t>(out.size_bytes) == state.values / 2 + state.values % 2) return out;
    throw Error(ErrorCode::kCorrupt, where + ": says shape " + printable(state.shape) + ", but " + in_quotes(name) +
                                         " has " + std::to_string(out.size_bytes) + " bytes, not half of one a value");
  }

  Codebook codebook_of(const PackedWeight& weight) const {
    Codebook out{};
    read_stored(checkpoint_, *weight.codebook, 0, std::as_writable_bytes(std::span(out)));
    return out;
  }

  BlockScales scales_of(const PackedWeight& weight) const {
    BlockScales out{ByteRange(checkpoint_, *weight.scales), {}};
    if (!weight.state.nested) return out;
    out.nested = {{},
                  ByteRange(checkpoint_, *weight.nested_scales),
                  weight.state.nested->block_size,
                  weight.state.nested->offset};
    read_stored(checkpoint_, *weight.nested_codebook, 0, std::as_writable_bytes(std::span(out.nested->codebook)));
    return out;
  }

  void read(const PackedWeight& weight) {
    const QuantState& state = weight.state;
    const Codebook codebook = codebook_of(weight);
    const bool is_known = codebook == *state.scheme->codebook;
    const auto group = group_size(state);
    if (!is_known || !group) {
      ++(is_known ? uneven_ : other_codebook_);
      return compute(weight, codebook);
    }
    const bool can_stay = *group == state.block_size && (!state.nested || state.nested->block_size == kNestedBlock);
    can_stay ? refer(weight) : regroup(weight, *group);
  }

  TensorRecord record_of(const PackedWeight& weight, std::int64_t group) const {
    TensorRecord out;
    out.name = weight.name;
    out.shape = weight.state.shape;
    out.original_dtype = weight.state.dtype;
    out.scheme = weight.state.scheme;
    out.group_size = group;
    out.scale_dtype = Dtype::kFloat32;
    return out;
  }

  // Every part where it lies.
  void refer(const PackedWeight& weight) {
    TensorRecord record = record_of(weight, weight.state.block_size);
    if (weight.state.nested) {
      record.scale_dtype = Dtype::kUint8;
      record.nested_offset = weight.state.nested->offset;
    }
    record.parts = packed_part_names(record);
    for (const PartSpec& spec : packed_parts(record)) {
      const StoredTensor& stored = *checkpoint_.find(record.parts[spec.part]);
      record.size_bytes += stored.size_bytes;
      if (spec.part != Part::kState) changes_.view(stored, stored.name, spec.dtype, spec.shape);
    }
    records_.push_back(std::move(record));
  }

  // The codes where they lie, the scales one for each smaller group.
  void regroup(const PackedWeight& weight, std::int64_t group) {
    ++regrouped_;
    TensorRecord record = record_of(weight, group);
    record.parts = packed_part_names(record);
    Translation& translation = changes_.beside(*weight.codes);
    for (const StoredTensor* part : weight.parts()) {
      if (part != weight.codes && part != weight.codebook) translation.consume(*part);
    }
    for (PartSpec& spec : packed_parts(record)) {
      std::unique_ptr<TensorBytes> bytes;
      if (spec.part == Part::kScale) {
        bytes = std::make_unique<GroupScales>(scales_of(weight), weight.state.block_size, group, spec.shape[0]);
      } else if (spec.part == Part::kState) {
        bytes = state_bytes(weight.state, group);
        spec.shape = {static_cast<std::int64_t>(bytes->size_bytes())};
      } else {
        const StoredTensor& stored = spec.part == Part::kCodes ? *weight.codes : *weight.codebook;
        changes_.view(stored, stored.name, spec.dtype, spec.shape);
        record.size_bytes += stored.size_bytes;
        continue;
      }
      record.size_bytes += bytes->size_bytes();
      translation.add(record.parts[spec.part], spec.dtype, spec.shape, std::move(bytes));
    }
    records_.push_back(std::move(record));
  }

  static std::unique_ptr<TensorBytes> state_bytes(QuantState state, std::int64_t group) {
    state.block_size = group;
    const std::string text = quant_state_text(state);
    const auto bytes = std::as_bytes(std::span(text));
    return std::make_unique<ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  void compute(const PackedWeight& weight, const Codebook& codebook) {
    Translation& translation = changes_.beside(*weight.codes);
    for (const StoredTensor* part : weight.parts()) translation.consume(*part);
    TensorRecord record;
    record.name = weight.name;
    record.shape = weight.state.shape;
    record.original_dtype = weight.state.dtype;
    record.stored_dtype = Dtype::kFloat32;
    record.parts[Part::kCodes] = weight.name;
    auto bytes = std::make_unique<BlockValues>(ByteRange(checkpoint_, *weight.codes), codebook, scales_of(weight),
                                               weight.state.block_size, weight.state.values);
    record.size_bytes = bytes->size_bytes();
    translation.add(weight.name, Dtype::kFloat32, weight.state.shape, std::move(bytes));
    records_.push_back(std::move(record));
  }

  void add_notes() {
    const auto note = [&](std::int64_t count, const char* what) {
      if (count > 0) checkpoint_.notes.push_back(counted_are(count) + what);
    };
    note(regrouped_,
         " in blocks that cross rows or have scales nested otherwise: read with the same codes and values, "
         "in groups that end with the row");
    note(uneven_, " read as float32 with the same values: their blocks do not end where rows and words do");
    note(other_codebook_, " read as float32 with the same values: their quant_map is not the scheme's");
  }

  Checkpoint& checkpoint_;
  ForeignTensors changes_;
  std::vector<TensorRecord> records_;
  std::int64_t regrouped_ = 0, uneven_ = 0, other_codebook_ = 0;
};

bool is_true(const JsonField& config, const char* key) {
  const auto field = config.find(key);
  return field && field->boolean();
}

}  // namespace

bool has_bitsandbytes_weights(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors, [](const StoredTensor& tensor) {
    return tensor.name.find(kStateInfix) != std::string::npos;
  });
}

bool is_bitsandbytes_config(const JsonField& config) {
  return !config.find("quant_method") && (config.find("load_in_4bit") || config.find("load_in_8bit"));
}

std::vector<TensorRecord> read_bitsandbytes(Checkpoint& checkpoint, const JsonField& config) {
  if (is_true(config, "load_in_8bit"))
    fail_unsupported(config.path() + ".load_in_8bit", "bitsandbytes's 8-bit weights (LLM.int8)");
  return BitsandbytesTensors(checkpoint).run();
}

}  // namespace halfbyte::files

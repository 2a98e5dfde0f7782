#include "convert/gguf/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <set>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "convert/gguf/blocks.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::convert {
namespace {

using files::in_quotes;
using files::Part;
using files::TensorRecord;

// Whether every scale, or offset, is a float16 number, which a block of GGUF has.
bool is_float16(const files::Checkpoint& source, const TensorRecord& record, Part part) {
  if (record.scale_dtype == Dtype::kFloat16 || !record.parts.has(part)) return true;
  const files::StoredTensor& stored = *source.find(record.parts[part]);
  const std::int64_t width = size_bytes(record.scale_dtype);
  std::vector<std::byte> bytes(1 << 16);
  for (std::uint64_t at = 0; at < stored.size_bytes; at += bytes.size()) {
    bytes.resize(std::min<std::uint64_t>(bytes.size(), stored.size_bytes - at));
    files::read_stored(source, stored, at, bytes);
    const std::int64_t count = static_cast<std::int64_t>(bytes.size()) / width;
    std::vector<float> wide(static_cast<std::size_t>(count)), back(wide.size());
    std::vector<std::byte> half(wide.size() * 2);
    std::byte* const wide_bytes = std::as_writable_bytes(std::span(wide)).data();
    quant::convert(bytes.data(), record.scale_dtype, wide_bytes, Dtype::kFloat32, count);
    quant::convert(wide_bytes, Dtype::kFloat32, half.data(), Dtype::kFloat16, count);
    quant::convert(half.data(), Dtype::kFloat16, std::as_writable_bytes(std::span(back)).data(), Dtype::kFloat32,
                   count);
    if (wide != back) return false;
  }
  return true;
}

// Why a packed tensor's numbers are none of GGUF's; empty: they are.
std::string why_not_exact(const files::Checkpoint& source, const TensorRecord& record) {
  if (!exact_gguf_type(record.scheme->id)) return "GGUF has no type for " + std::string(record.scheme->name);
  if (record.parts.has(Part::kColumnOrder)) return "its columns are grouped in an order of their own";
  if (record.group_size % static_cast<std::int64_t>(kGgufBlock) != 0)
    return "its groups of " + std::to_string(record.group_size) + " are not whole blocks of 32";
  if (!is_float16(source, record, Part::kScale)) return "a scale of it is no float16 number";
  return is_float16(source, record, Part::kOffset) ? "" : "an offset of it is no float16 number";
}

// What Llama 3's scaling divides each pair's frequency by. Source: transformers, modeling_rope_utils.py.
std::vector<float> llama3_divisors(const models::RopeConfig& rope) {
  std::vector<float> out;
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  for (std::int64_t i = 0; i < rope.rotary_dim; i += 2) {
    const double frequency = std::pow(rope.theta, -static_cast<double>(i) / static_cast<double>(rope.rotary_dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double smooth =
        (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const double between = 1 / ((1 - smooth) / rope.factor + smooth);
    out.push_back(static_cast<float>(wavelength < original / rope.high_freq_factor  ? 1.0
                                     : wavelength > original / rope.low_freq_factor ? rope.factor
                                                                                    : between));
  }
  return out;
}

class Planning {
 public:
  Planning(const files::Checkpoint& source, const models::ModelConfig& model, const files::GgufFamily& family,
           const GgufExportOptions& options)
      : source_(source), model_(model), family_(family), options_(options) {
    if (!options.type.empty()) asked_ = &asked_gguf_type(options.type);
  }

  GgufPlan make() {
    for (const auto& [gguf, name] : files::gguf_names(family_, *model_.naming, model_.num_hidden_layers)) {
      const auto sources = sources_of(name);
      if (!sources.empty()) add(gguf, name, sources);
    }
    add_rope();
    check_all_used();
    place();
    return std::move(plan_);
  }

 private:
  std::vector<const TensorRecord*> sources_of(const files::GgufName& name) {
    std::vector<const TensorRecord*> out;
    const std::int64_t count = name.is_stack ? model_.moe.num_experts : 1;
    for (std::int64_t i = 0; i < count; ++i) {
      std::string full = name.name;
      if (name.is_stack) full.replace(full.find("{}"), 2, std::to_string(i));
      const TensorRecord* record = source_.manifest.find(full);
      if (!record) break;
      used_.insert(record->name);
      out.push_back(record);
    }
    return out;
  }

  void add(const std::string& gguf, const files::GgufName& name, const std::vector<const TensorRecord*>& sources) {
    GgufOutput out;
    out.name = gguf;
    out.sources = sources;
    out.shape = sources.front()->shape;
    if (name.is_stack) out.shape.insert(out.shape.begin(), static_cast<std::int64_t>(sources.size()));
    out.order.rows = sources.front()->shape.empty() ? 1 : sources.front()->shape.front();
    if (family_.has_metas_rotation && name.heads != files::HeadRows::kNone)
      out.order.heads = name.heads == files::HeadRows::kQuery ? model_.num_attention_heads : model_.num_key_value_heads;
    if (family_.adds_one_to_norms && name.is_norm) out.shift = 1;
    choose_type(out);
    plan_.tensors.push_back(std::move(out));
  }

  void choose_type(GgufOutput& out) {
    const TensorRecord& first = *out.sources.front();
    const GgufType* type = &gguf_type(Dtype::kFloat32);
    if (out.shape.size() > 1) type = first.scheme ? type_of_packed(out) : type_of_dense(first);
    for (const TensorRecord* record : out.sources) {
      if (record->shape != first.shape || record->scheme != first.scheme || !files::TensorReader::can_read(*record))
        refuse(*record, "it is not like the other experts, or of a dtype that is not exported");
    }
    set_type(*type, out);
  }

  static void set_type(const GgufType& type, GgufOutput& out) {
    out.how = &type;
    out.type = files::find_ggml_type(type.number);
  }

  // Of what is not asked to be another, and stays dense.
  static const GgufType* own_type(const TensorRecord& record) {
    return &gguf_type(is_weight_dtype(record.stored_dtype) ? record.stored_dtype : Dtype::kFloat32);
  }

  const GgufType* type_of_dense(const TensorRecord& record) const {
    if (!asked_) return own_type(record);
    if (!asked_->quantize) return asked_;
    const bool is_linear = models::role_of(source_.architecture, record.name, record.shape) == models::Role::kLinear;
    const bool has_blocks = record.shape.back() % static_cast<std::int64_t>(kGgufBlock) == 0;
    return is_linear && has_blocks ? asked_ : own_type(record);
  }

  // Of all its sources the same.
  const GgufType* type_of_packed(GgufOutput& out) {
    const TensorRecord& first = *out.sources.front();
    const GgufType* const exact = exact_gguf_type(first.scheme->id);
    const GgufType* const own = exact ? exact : &gguf_type("Q8_0");
    const GgufType* const wanted = asked_ ? asked_ : own;
    if (wanted->float16s == 0) return wanted;
    std::string problem = wanted == own ? "" : "it is not stored in codes of " + options_.type;
    for (const TensorRecord* record : out.sources) {
      if (problem.empty()) problem = why_not_exact(source_, *record);
    }
    out.is_exact = problem.empty();
    ++(out.is_exact ? plan_.summary.exact_tensors : plan_.summary.requantized_tensors);
    if (out.is_exact) return wanted;
    if (!options_.requantize) refuse(first, problem);
    if (first.shape.back() % static_cast<std::int64_t>(kGgufBlock) != 0) return &gguf_type(Dtype::kFloat16);
    return wanted->quantize ? wanted : &gguf_type("Q8_0");
  }

  [[noreturn]] static void refuse(const TensorRecord& record, const std::string& problem) {
    throw Error(ErrorCode::kUnsupported, "tensor " + in_quotes(record.name) + ": " + problem + "; " +
                                             Option::kRequantize + " takes the nearest numbers that GGUF has");
  }

  void add_values(const std::string& name, std::vector<float> values) {
    GgufOutput out;
    out.name = name;
    out.shape = {static_cast<std::int64_t>(values.size())};
    out.values = std::move(values);
    set_type(gguf_type(Dtype::kFloat32), out);
    plan_.tensors.push_back(std::move(out));
  }

  void add_rope() {
    const models::RopeConfig& rope = model_.ropes.front();
    const auto narrow = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    if (rope.type == models::RopeType::kLlama3) add_values("rope_freqs.weight", llama3_divisors(rope));
    if (rope.type != models::RopeType::kLongrope) return;
    add_values("rope_factors_long.weight", narrow(rope.long_factors));
    add_values("rope_factors_short.weight", narrow(rope.short_factors));
  }

  void check_all_used() const {
    for (const TensorRecord& record : source_.manifest.tensors) {
      const bool is_derived = models::role_of(source_.architecture, record.name, record.shape) == models::Role::kBuffer;
      if (used_.contains(record.name) || is_derived) continue;
      throw Error(ErrorCode::kUnsupported, "tensor " + in_quotes(record.name) + " has no name in GGUF");
    }
  }

  void place() {
    for (GgufOutput& tensor : plan_.tensors) {
      std::uint64_t values = 1;
      for (const std::int64_t length : tensor.shape) values *= static_cast<std::uint64_t>(length);
      tensor.size_bytes = values / tensor.type->block_values * tensor.type->block_bytes;
      tensor.offset = plan_.data_bytes;
      plan_.data_bytes = gguf_padded(plan_.data_bytes + tensor.size_bytes);
    }
  }

  const files::Checkpoint& source_;
  const models::ModelConfig& model_;
  const files::GgufFamily& family_;
  const GgufExportOptions& options_;
  const GgufType* asked_ = nullptr;  // null: as they are stored
  std::set<std::string_view> used_;
  GgufPlan plan_;
};

}  // namespace

GgufPlan plan_gguf(const files::Checkpoint& source, const models::ModelConfig& model, const files::GgufFamily& family,
                   const GgufExportOptions& options) {
  return Planning(source, model, family, options).make();
}

}  // namespace halfbyte::convert

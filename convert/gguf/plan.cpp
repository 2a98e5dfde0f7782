#include "convert/gguf/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
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

bool is_float16(float value) {
  std::byte half[2], back[sizeof value];
  const auto* const wide = reinterpret_cast<const std::byte*>(&value);
  quant::convert(wide, Dtype::kFloat32, half, Dtype::kFloat16, 1);
  quant::convert(half, Dtype::kFloat16, back, Dtype::kFloat32, 1);
  return std::memcmp(wide, back, sizeof value) == 0;
}

// Among those that a byte numbers.
bool is_power_of_two(float value) {
  int exponent = 0;
  return value > 0 && std::frexp(value, &exponent) == 0.5F && exponent > -127;
}

// Whether a part, scales or offsets, has such numbers alone.
bool are_all(const files::Checkpoint& source, const TensorRecord& record, Part part, bool (*is_so)(float)) {
  const files::StoredTensor& stored = *source.find(record.parts[part]);
  const std::int64_t width = size_bytes(record.scale_dtype);
  std::vector<std::byte> bytes(1 << 16);
  for (std::uint64_t at = 0; at < stored.size_bytes; at += bytes.size()) {
    bytes.resize(std::min<std::uint64_t>(bytes.size(), stored.size_bytes - at));
    files::read_stored(source, stored, at, bytes);
    std::vector<float> wide(bytes.size() / static_cast<std::size_t>(width));
    quant::convert(bytes.data(), record.scale_dtype, std::as_writable_bytes(std::span(wide)).data(), Dtype::kFloat32,
                   std::ssize(wide));
    if (!std::ranges::all_of(wide, is_so)) return false;
  }
  return true;
}

// Why a packed tensor's numbers are none of GGUF's; empty: they are.
std::string why_not_exact(const files::Checkpoint& source, const TensorRecord& record, std::int64_t unit) {
  const GgufType* const type = exact_gguf_type(record.scheme->id);
  if (!type) return "GGUF has no type for " + std::string(record.scheme->name);
  if (record.parts.has(Part::kColumnOrder)) return "its columns are grouped in an order of their own";
  const std::string groups = "its groups of " + std::to_string(record.group_size);
  if (record.group_size % static_cast<std::int64_t>(kGgufBlock) != 0) return groups + " are not whole blocks of 32";
  if (unit > 0 && unit % record.group_size != 0)
    return groups + " are shared by heads of " + std::to_string(unit) + ", which GGUF has in another order";
  if (type->has_exponents)
    return are_all(source, record, Part::kScale, is_power_of_two) ? "" : "a scale of it is no power of two";
  if (record.scale_dtype == Dtype::kFloat16) return "";
  if (!are_all(source, record, Part::kScale, is_float16)) return "a scale of it is no float16 number";
  if (!record.parts.has(Part::kOffset)) return "";
  return are_all(source, record, Part::kOffset, is_float16) ? "" : "an offset of it is no float16 number";
}

// What GGUF has as rows of float32 whatever it is stored in, since llama.cpp computes with it so.
bool is_small(models::Role role) {
  using models::Role;
  constexpr Role kMatrices[] = {Role::kLinear, Role::kEmbedding, Role::kHead, Role::kRouter, Role::kDecay};
  return std::ranges::find(kMatrices, role) == std::end(kMatrices);
}

// Of what one source becomes.
std::vector<std::int64_t> shape_of(std::vector<std::int64_t> shape, const files::GgufName& name,
                                   const files::GgufLayout& layout) {
  if (name.role == models::Role::kConvolution && shape.size() == 3) shape.erase(shape.begin() + 1);  // of length 1
  if (layout.is_plain() || layout.unit > 1 || shape.size() == 1) return shape;
  const auto count = static_cast<std::int64_t>(layout.picks.size());
  if (layout.is_transposed) return {shape[0] / layout.period, shape[1], count};
  if (layout.is_stack) return {shape[0] / layout.period, count, shape[1]};
  std::int64_t& shared = layout.unit == 1 ? shape.back() : shape[shape.size() - 2];
  shared = shared / layout.period * count;
  return shape;
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

// Pairs that stay are divided by what leaves nothing.
std::vector<float> proportional_divisors(const models::RopeConfig& rope) {
  std::vector<float> out(static_cast<std::size_t>(rope.rotary_dim / 2), 1e30F);
  std::fill_n(out.begin(), rope.turning_dim / 2, 1.0F);
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
    out.instead = name.values;
    if (name.layout) out.layout = name.layout(model_);
    check_layout(*sources.front(), out.layout);
    out.shape = shape_of(sources.front()->shape, name, out.layout);
    if (name.is_stack) out.shape.insert(out.shape.begin(), static_cast<std::int64_t>(sources.size()));
    choose_type(name.role, out);
    plan_.tensors.push_back(std::move(out));
  }

  // check_tensors() has seen that the tensor is what the model's sizes say, which are the layout's too.
  static void check_layout(const TensorRecord& record, const files::GgufLayout& layout) {
    if (layout.is_plain()) return;
    const std::int64_t columns = record.shape.size() > 1 ? record.shape.back() : 1;
    std::int64_t units = layout.unit > 0 ? columns / layout.unit : 1;
    for (std::size_t i = 0; i + 1 < std::max<std::size_t>(record.shape.size(), 2) && i < record.shape.size(); ++i)
      units *= record.shape[i];
    if (units % layout.period == 0) return;
    throw Error(ErrorCode::kCorrupt, "tensor " + in_quotes(record.name) + " of shape " +
                                         files::printable(record.shape) + " has no whole periods of " +
                                         std::to_string(layout.period));
  }

  void choose_type(models::Role role, GgufOutput& out) {
    const TensorRecord& first = *out.sources.front();
    const GgufType* type = &gguf_type(Dtype::kFloat32);
    if (out.shape.size() > 1 && !is_small(role)) type = first.scheme ? type_of_packed(out) : type_of_dense(out);
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

  const GgufType* type_of_dense(const GgufOutput& out) const {
    const TensorRecord& record = *out.sources.front();
    if (!asked_) return own_type(record);
    if (!asked_->quantize) return asked_;
    const bool is_linear = models::role_of(source_.architecture, record.name, record.shape) == models::Role::kLinear;
    const bool has_blocks = out.shape.back() % static_cast<std::int64_t>(kGgufBlock) == 0;
    return is_linear && has_blocks ? asked_ : own_type(record);
  }

  // Of all its sources the same.
  const GgufType* type_of_packed(GgufOutput& out) {
    const TensorRecord& first = *out.sources.front();
    const GgufType* const exact = exact_gguf_type(first.scheme->id);
    const GgufType* const own = exact ? exact : &gguf_type("Q8_0");
    const GgufType* const wanted = asked_ ? asked_ : own;
    if (wanted->float16s == 0 && !wanted->has_exponents) return wanted;
    if (out.layout.is_transposed && !asked_) return &gguf_type(Dtype::kFloat32);  // the same numbers
    std::string problem = wanted == own ? "" : "it is not stored in codes of " + options_.type;
    if (out.layout.is_transposed) problem = "GGUF has its rows as columns, whose groups are others";
    for (const TensorRecord* record : out.sources) {
      if (problem.empty()) problem = why_not_exact(source_, *record, out.layout.unit);
    }
    out.is_exact = problem.empty();
    ++(out.is_exact ? plan_.summary.exact_tensors : plan_.summary.requantized_tensors);
    if (out.is_exact) return wanted;
    if (!options_.requantize) refuse(first, problem);
    if (out.shape.back() % static_cast<std::int64_t>(kGgufBlock) != 0) return &gguf_type(Dtype::kFloat16);
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
    if (rope.type == models::RopeType::kProportional) add_values("rope_freqs.weight", proportional_divisors(rope));
    if (rope.type != models::RopeType::kLongrope) return;
    add_values("rope_factors_long.weight", narrow(rope.long_factors));
    add_values("rope_factors_short.weight", narrow(rope.short_factors));
  }

  void check_all_used() {
    std::int64_t left_out = 0;
    for (const TensorRecord& record : source_.manifest.tensors) {
      const bool is_derived = models::role_of(source_.architecture, record.name, record.shape) == models::Role::kBuffer;
      if (used_.contains(record.name) || is_derived) continue;
      if (!models::is_not_run(model_, record.name))
        throw Error(ErrorCode::kUnsupported, "tensor " + in_quotes(record.name) + " has no name in GGUF");
      ++left_out;
    }
    if (left_out == 0) return;
    plan_.summary.notes.push_back(std::to_string(left_out) +
                                  " tensors that answering a text does not need (of what sees or hears, of layers for "
                                  "several tokens ahead) are left out");
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

#include "convert/export/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "convert/file_notes.h"
#include "convert/quantization_config.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"
#include "loader/files/parallel.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::in_quotes;
using files::TensorRecord;
using models::Role;

std::string group_text(const TensorRecord& record) {
  return record.group_size == record.shape.back() ? "one scale a row"
                                                  : "groups of " + std::to_string(record.group_size);
}

// What the scales and zero points of a tensor are, as far as a format asks.
struct ScaleFacts {
  float inexact = 0;  // the first scale that float16 does not hold
  double change = 0;  // by rounding it, the largest, relative
  bool is_rounded = false;
  bool has_lowest_zero_point = false;  // of code 0
};

void check_scales(const TensorRecord& record, std::span<const float> scales, ScaleFacts& out) {
  std::vector<std::byte> half(scales.size() * 2);
  std::vector<float> back(scales.size());
  const auto count = static_cast<std::int64_t>(scales.size());
  quant::convert(std::as_bytes(scales).data(), Dtype::kFloat32, half.data(), Dtype::kFloat16, count);
  quant::convert(half.data(), Dtype::kFloat16, std::as_writable_bytes(std::span(back)).data(), Dtype::kFloat32, count);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] == back[i]) continue;
    if (!std::isfinite(scales[i]))
      throw Error(ErrorCode::kCorrupt, "tensor " + in_quotes(record.name) + " has a scale that is not finite");
    if (!std::isfinite(back[i]))
      throw Error(ErrorCode::kUnsupported, "tensor " + in_quotes(record.name) + " has a scale of " +
                                               std::to_string(scales[i]) + ", too large for float16; " +
                                               Option::kFormat + " compressed-tensors keeps it");
    if (!out.is_rounded) out.inexact = scales[i];
    out.is_rounded = true;
    out.change = std::max(out.change, std::abs((double{back[i]} - scales[i]) / scales[i]));
  }
}

bool has_field_of_zero(std::uint32_t word) { return ((word - 0x11111111U) & ~word & 0x88888888U) != 0; }

// Reads all of them, in pieces.
ScaleFacts scale_facts(const files::Checkpoint& source, const TensorRecord& record) {
  constexpr std::int64_t kScales = std::int64_t{1} << 18;
  ScaleFacts out;
  const auto [rows, columns] = files::matrix_shape(record.shape);
  const std::int64_t groups = columns / record.group_size;
  const std::int64_t step = std::max<std::int64_t>(8, kScales / groups / 8 * 8);
  BlockReader reader(source, record, record);
  std::vector<float> scales;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    scales.resize(static_cast<std::size_t>(count * groups));
    reader.read_scales(row, scales);
    if (record.scale_dtype != Dtype::kFloat16) check_scales(record, scales, out);
    if (record.scheme->decode != Decode::kZeroPoint) continue;
    // The fields of the last word beyond the last row say nothing.
    std::vector<std::uint32_t> words = reader.read_zero_points(row, count);
    const std::uint32_t padding = count % 8 == 0 ? 0 : ~std::uint32_t{0} << (4 * (count % 8));
    for (std::size_t i = words.size() - static_cast<std::size_t>(groups); i < words.size(); ++i) words[i] |= padding;
    out.has_lowest_zero_point = out.has_lowest_zero_point || std::ranges::any_of(words, has_field_of_zero);
  }
  return out;
}

class Planning {
 public:
  Planning(const files::Checkpoint& source, const ExportFormat& format, const ExportOptions& options)
      : source_(source), format_(format), options_(options) {
    plan_.format = &format;
  }

  ExportPlan make() {
    for (const TensorRecord& record : source_.manifest.tensors) plan_.tensors.push_back({&record, {}, record, {}});
    choose_common();
    for (ExportedTensor& tensor : plan_.tensors) {
      if (tensor.source->scheme) decide(tensor);
    }
    if (format_.has_float16_scales) look_at_scales();
    refuse_changes();
    check_packed();
    finish_facts();
    add_notes();
    return std::move(plan_);
  }

 private:
  // Why no tensor of this shape and place can be packed; empty: one can.
  std::string structural_obstacle(const TensorRecord& record) const {
    const std::string title(format_.title);
    const Role role = models::role_of(source_.architecture, record.name, record.shape);
    if (record.shape.size() != 2) return title + " has no experts stacked in one tensor";
    if (role == Role::kEmbedding) return title + " has no packed embeddings";
    if (!record.name.ends_with(".weight")) return "its name does not end in .weight, so that no reader would find it";
    if (role == Role::kHead && !format_.packs_heads) return "transformers looks for no packed output head in " + title;
    if (record.shape[0] % format_.row_multiple != 0)
      return "out_features " + std::to_string(record.shape[0]) + " is no multiple of " +
             std::to_string(format_.row_multiple);
    if (record.shape[1] % format_.column_multiple != 0)
      return "in_features " + std::to_string(record.shape[1]) + " is no multiple of " +
             std::to_string(format_.column_multiple);
    return {};
  }

  bool has_scheme(const TensorRecord& record) const {
    return std::ranges::find(format_.schemes, record.scheme->id) != format_.schemes.end();
  }

  bool is_candidate(const TensorRecord& record) const {
    return record.scheme && has_scheme(record) && structural_obstacle(record).empty();
  }

  // The bits, group size (or scheme, in bitsandbytes) of most: what the others become.
  void choose_common() {
    std::map<const Scheme*, std::int64_t> weights;
    bool is_nested = true;
    std::vector<TensorRecord> candidates;
    for (const TensorRecord& record : source_.manifest.tensors) {
      if (!is_candidate(record)) continue;
      candidates.push_back(record);
      weights[record.scheme] += record.shape[0] * record.shape[1];
      is_nested = is_nested && record.nested_offset.has_value();
    }
    keeps_nested_ = is_nested;
    common_ = &scheme(format_.schemes.front());
    for (const auto& [scheme, count] : weights) {
      if (!weights.contains(common_) || count > weights[common_]) common_ = scheme;
    }
    plan_.facts.bits = common_->bits;
    std::erase_if(candidates, [&](const TensorRecord& record) { return record.scheme->bits != common_->bits; });
    if (format_.is_uniform) plan_.facts.group_size = candidates.empty() ? fallback_group_size() : smallest(candidates);
  }

  // Larger groups are runs of the smallest ones with the same scale.
  static std::int64_t smallest(const std::vector<TensorRecord>& candidates) {
    if (is_per_channel(candidates)) return 0;
    return std::ranges::min(candidates, {}, &TensorRecord::group_size).group_size;
  }

  // For a source of which nothing can stay: the largest group size, up to the usual 128 and not above its own, that
  // divides all rows.
  std::int64_t fallback_group_size() const {
    std::int64_t most = 64;
    for (const TensorRecord& record : source_.manifest.tensors) {
      if (record.scheme) most = std::min<std::int64_t>(128, record.group_size);
    }
    for (const std::int64_t size : kGroupSizes) {
      const bool divides_all = std::ranges::all_of(source_.manifest.tensors, [&](const TensorRecord& record) {
        return !record.scheme || !structural_obstacle(record).empty() || record.shape[1] % size == 0;
      });
      if (size <= most && divides_all) return size;
    }
    return kGroupSizes[std::size(kGroupSizes) - 1];
  }

  // 0: none divides the rows.
  std::int64_t new_group_size(const TensorRecord& record) const {
    const std::int64_t columns = record.shape.back();
    if (format_.is_uniform) {
      const std::int64_t size = plan_.facts.group_size == 0 ? columns : plan_.facts.group_size;
      return columns % size == 0 && (size == columns || size % 8 == 0) ? size : 0;
    }
    const auto sizes = group_sizes(*common_);
    if (std::ranges::find(sizes, record.group_size) != sizes.end()) return record.group_size;
    for (const std::int64_t size : {64, 32, 16}) {
      if (columns % size == 0 && std::ranges::find(sizes, size) != sizes.end()) return size;
    }
    return common_->layout == Layout::kPackQuantized ? columns : 0;
  }

  void decide(ExportedTensor& tensor) {
    const TensorRecord& record = *tensor.source;
    tensor.reason = structural_obstacle(record);
    if (!tensor.reason.empty()) return make_dense(tensor);
    if (tensor.reason = scheme_obstacle(record); !tensor.reason.empty()) return make_anew(tensor);
    tensor.result.parts = files::packed_part_names(record);
    if (format_.is_uniform) {
      tensor.action = ExportAction::kRearrange;
      tensor.result.scale_dtype = Dtype::kFloat16;
      tensor.result.group_size = plan_.facts.group_size == 0 ? record.group_size : plan_.facts.group_size;
    } else if (record.nested_offset && !keeps_nested_) {
      tensor.action = ExportAction::kRearrange;
      tensor.result.nested_offset.reset();
      tensor.result.scale_dtype = Dtype::kFloat32;
      tensor.result.parts = files::packed_part_names(tensor.result);
    }
  }

  std::string scheme_obstacle(const TensorRecord& record) const {
    const std::string title(format_.title);
    if (!has_scheme(record)) return title + " has no " + std::string(record.scheme->name);
    if (record.parts.has(files::Part::kColumnOrder))
      return "its columns are grouped in an order of their own, which is not written in " + title;
    const auto block = static_cast<std::uint64_t>(record.group_size);
    if (format_.smallest_block > record.group_size || (format_.smallest_block > 0 && !std::has_single_bit(block)))
      return title + " has no blocks of " + std::to_string(block);
    if (!format_.is_uniform) return {};
    if (record.scheme->bits != plan_.facts.bits)
      return title + " has one number of bits for all tensors, and most have " + std::to_string(plan_.facts.bits);
    const bool fits = plan_.facts.group_size == 0 ? record.group_size == record.shape.back()
                                                  : record.group_size % plan_.facts.group_size == 0;
    return fits ? ""
                : title + " has one group size for all tensors, and others have " +
                      std::to_string(plan_.facts.group_size);
  }

  // A head is of use to every reader when it is dense, and is the last that should lose.
  void make_anew(ExportedTensor& tensor) const {
    const TensorRecord& record = *tensor.source;
    const std::int64_t group_size = new_group_size(record);
    const bool is_head = models::role_of(source_.architecture, record.name, record.shape) == Role::kHead;
    if (group_size == 0 || is_head) return make_dense(tensor);
    TensorRecord& out = tensor.result;
    tensor.action = ExportAction::kQuantize;
    out.scheme = new_scheme(record);
    out.group_size = group_size;
    out.scale_dtype = new_scale_dtype(record);
    out.nested_offset.reset();
    out.parts = {};
    out.parts = files::packed_part_names(out);
  }

  const Scheme* new_scheme(const TensorRecord& record) const {
    if (common_->layout == Layout::kBitsandbytes) return common_;
    const int bits = format_.is_uniform ? plan_.facts.bits : record.scheme->bits;
    if (bits == 8) return &scheme(SchemeId::kSymInt8);
    const bool has_range = is_asymmetric(*record.scheme);
    return &scheme(has_range && format_.has_all_zero_points ? SchemeId::kAsymInt4 : SchemeId::kSymInt4);
  }

  Dtype new_scale_dtype(const TensorRecord& record) const {
    if (format_.has_float16_scales) return Dtype::kFloat16;
    return scale_dtype_for(*common_, record.original_dtype.value_or(Dtype::kFloat32));
  }

  static void make_dense(ExportedTensor& tensor) {
    const TensorRecord& record = *tensor.source;
    TensorRecord& out = tensor.result;
    tensor.action = ExportAction::kDequantize;
    out.scheme = nullptr;
    out.nested_offset.reset();
    out.stored_dtype =
        record.original_dtype && is_weight_dtype(*record.original_dtype) ? *record.original_dtype : Dtype::kFloat32;
    out.parts = {};
    out.parts[files::Part::kCodes] = record.name;
  }

  void look_at_scales() {
    std::vector<std::size_t> asked;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const ExportedTensor& tensor = plan_.tensors[i];
      const bool is_known =
          tensor.source->scale_dtype == Dtype::kFloat16 && tensor.source->scheme->decode != Decode::kZeroPoint;
      if (tensor.action == ExportAction::kRearrange && !is_known) asked.push_back(i);
    }
    std::vector<ScaleFacts> facts(asked.size());
    files::parallel_for(asked.size(), options_.threads, [&](std::size_t i) {
      if (options_.stop.stop_requested()) throw Error(ErrorCode::kInterrupted, "stopped; nothing was written");
      facts[i] = scale_facts(source_, *plan_.tensors[asked[i]].source);
    });
    for (std::size_t i = 0; i < asked.size(); ++i) note_scales(facts[i], plan_.tensors[asked[i]]);
  }

  void note_scales(const ScaleFacts& facts, ExportedTensor& tensor) {
    plan_.facts.is_gptq_v2 = plan_.facts.is_gptq_v2 || facts.has_lowest_zero_point;
    if (!facts.is_rounded) return;
    char text[32];
    std::snprintf(text, sizeof text, "%g", static_cast<double>(facts.inexact));
    tensor.action = ExportAction::kRoundScales;
    tensor.reason = "its scale " + std::string(text) + " is no float16 number, and " + std::string(format_.title) +
                    " has no other scales";
    plan_.scale_change = std::max(plan_.scale_change, facts.change);
  }

  void refuse_changes() const {
    if (options_.requantize) return;
    const auto changed = [](const ExportedTensor& tensor) { return !tensor.reason.empty(); };
    const auto first = std::ranges::find_if(plan_.tensors, changed);
    if (first == plan_.tensors.end()) return;
    const auto others = std::ranges::count_if(plan_.tensors, changed) - 1;
    throw Error(ErrorCode::kUnsupported,
                "tensor " + in_quotes(first->source->name) + " (" + std::string(first->source->scheme->name) + ", " +
                    group_text(*first->source) + "): " + first->reason + "; " + Option::kRequantize + " " +
                    remedy(*first) + (others > 0 ? " (and would change " + counted_tensors(others) + " more)" : "") +
                    better(*first));
  }

  static Text remedy(const ExportedTensor& tensor) {
    if (tensor.action == ExportAction::kRoundScales) return "rounds its scales";
    if (tensor.action == ExportAction::kDequantize)
      return "writes it dense, as " + std::string(name(tensor.result.stored_dtype)) +
             (tensor.source->original_dtype ? Text() : " or what " + Option::kAssumeOriginal + " says");
    return "quantises it again, as " + std::string(tensor.result.scheme->name) + ", " + group_text(tensor.result);
  }

  // Another format that keeps its numbers.
  Text better(const ExportedTensor& tensor) const {
    if (tensor.action == ExportAction::kDequantize || !tensor.source->scheme->has_foreign_readers) return {};
    const bool is_bitsandbytes = tensor.source->scheme->layout == Layout::kBitsandbytes;
    const std::string_view other = is_bitsandbytes ? "bitsandbytes" : "compressed-tensors";
    return other == format_.name ? Text() : "; " + Option::kFormat + " " + std::string(other) + " keeps its numbers";
  }

  void check_packed() const {
    if (std::ranges::any_of(plan_.tensors, [](const ExportedTensor& tensor) { return tensor.result.scheme; })) return;
    throw Error(ErrorCode::kUnsupported, "no tensor of the source can be packed in " + std::string(format_.title) +
                                             "; " + Option::kFormat + " safetensors writes all of them dense");
  }

  void finish_facts() {
    for (const ExportedTensor& tensor : plan_.tensors) {
      if (!tensor.result.scheme) continue;
      plan_.facts.is_symmetric = plan_.facts.is_symmetric && tensor.result.scheme->decode != Decode::kZeroPoint;
    }
  }

  void add_notes() {
    plan_.notes = file_notes(source_);
    std::map<std::string, std::int64_t> counts;
    for (const ExportedTensor& tensor : plan_.tensors) {
      const std::string was = tensor.source->scheme ? std::string(tensor.source->scheme->name) : "";
      if (tensor.action == ExportAction::kDequantize)
        ++counts[was + " written dense, as " + std::string(name(tensor.result.stored_dtype)) + ": " + tensor.reason];
      if (tensor.action == ExportAction::kQuantize)
        ++counts[was + " quantised again, as " + std::string(tensor.result.scheme->name) + ": " + tensor.reason];
      if (tensor.action == ExportAction::kRoundScales) ++counts[was + " with scales rounded to float16"];
    }
    for (const auto& [what, count] : counts) plan_.notes.push_back(counted_tensors(count) + " of " + what);
  }

  const files::Checkpoint& source_;
  const ExportFormat& format_;
  const ExportOptions& options_;
  const Scheme* common_ = nullptr;
  bool keeps_nested_ = true;
  ExportPlan plan_;
};

}  // namespace

std::vector<TensorRecord> ExportPlan::results() const {
  std::vector<TensorRecord> out;
  for (const ExportedTensor& tensor : tensors) out.push_back(tensor.result);
  return out;
}

ExportPlan plan_export(const files::Checkpoint& source, const ExportFormat& format, const ExportOptions& options) {
  return Planning(source, format, options).make();
}

}  // namespace halfbyte::convert

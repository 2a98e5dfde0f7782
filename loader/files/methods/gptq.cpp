#include "loader/files/methods/gptq.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/methods/computed_tensors.h"
#include "loader/files/methods/gptq_bytes.h"
#include "loader/files/methods/gptq_config.h"
#include "loader/files/methods/gptq_layout.h"
#include "loader/files/methods/sorted_columns.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/translation.h"

namespace halfbyte::files {
namespace {

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return value / by + (value % by != 0); }

// The tensors of one linear.
struct Parts {
  std::string module;
  std::string where;  // for messages
  const StoredTensor& codes;
  const StoredTensor& zero_points;
  const StoredTensor& scales;
  const StoredTensor* groups;  // null: there are none
};

struct Size {
  std::int64_t in, out, groups, group_size;
};

// Whether the shapes are those of a linear in this format, and of which size.
std::optional<Size> size_in(const Parts& parts, const LinearFormat& format, GptqPacking packing) {
  const bool is_awq = packing == GptqPacking::kAwq;
  const std::int64_t per_word = 32 / format.bits, rows = parts.codes.shape[0];
  Size size{is_awq ? rows : rows * per_word, parts.scales.shape[1], parts.scales.shape[0], 0};
  if (parts.groups && !is_awq) {
    size.in = parts.groups->shape[0];
    if (divided_up(size.in, per_word) != rows) return std::nullopt;
  }
  size.group_size = format.group_size == 0 ? size.in : std::min(format.group_size, size.in);
  const std::int64_t columns = is_awq ? divided_up(size.out, per_word) : size.out;
  const bool is_whole = !is_awq || size.out % per_word == 0;
  const bool fits = is_whole && parts.codes.shape[1] == columns &&
                    size.groups == divided_up(size.in, size.group_size) &&
                    parts.zero_points.shape == std::vector{size.groups, divided_up(size.out, per_word)};
  return fits ? std::optional(size) : std::nullopt;
}

WordMap zero_point_map(GptqPacking packing, int bits) {
  if (packing == GptqPacking::kAwq) return [](std::uint32_t word) noexcept { return from_awq(word); };
  if (packing == GptqPacking::kGptqV2) return [](std::uint32_t word) noexcept { return word; };
  if (bits == 8) return [](std::uint32_t word) noexcept { return from_gptq_v1(word, 8); };
  return [](std::uint32_t word) noexcept { return from_gptq_v1(word, 4); };
}

// Of the last word of `out` fields: those that are there.
std::uint32_t last_mask(std::int64_t out, int bits) {
  const std::int64_t fields = out % (32 / bits);
  return fields == 0 ? ~std::uint32_t{0} : (1u << (fields * bits)) - 1;
}

// Zero points as words of fields in the order of outputs, row by row.
class ZeroPointRows {
 public:
  ZeroPointRows(const Checkpoint& checkpoint, const Parts& parts, GptqPacking packing, int bits, std::int64_t out)
      : file_(checkpoint.data_files[parts.zero_points.file]),
        offset_(parts.zero_points.offset),
        words_(static_cast<std::uint64_t>(parts.zero_points.shape[1])),
        map_(zero_point_map(packing, bits)),
        middle_(ones_of_fields(bits) * middle_zero_point(bits)),
        last_mask_(last_mask(out, bits)) {}

  std::uint32_t mask() const noexcept { return last_mask_; }
  WordMap map() const noexcept { return map_; }

  // Whether all of groups [first, first + count) are the middle.
  bool are_middle(std::int64_t first, std::int64_t count) const {
    std::vector<std::uint32_t> row(words_);
    for (std::int64_t g = first; g < first + count; ++g) {
      file_->read(offset_ + static_cast<std::uint64_t>(g) * words_ * 4, std::as_writable_bytes(std::span(row)));
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::uint32_t mask = c + 1 == row.size() ? last_mask_ : ~std::uint32_t{0};
        if (((map_(row[c]) ^ middle_) & mask) != 0) return false;
      }
    }
    return true;
  }

 private:
  std::shared_ptr<const DataFile> file_;
  std::uint64_t offset_, words_;
  WordMap map_;
  std::uint32_t middle_, last_mask_;
};

// Scales of a tensor that is taken to be symmetric, which is made sure of before the first of them is given out.
class SymmetricScales final : public TensorBytes {
 public:
  SymmetricScales(std::unique_ptr<TensorBytes> scales, ZeroPointRows zero_points, std::int64_t groups,
                  std::string where)
      : scales_(std::move(scales)), zero_points_(std::move(zero_points)), groups_(groups), where_(std::move(where)) {}

  std::uint64_t size_bytes() const noexcept override { return scales_->size_bytes(); }
  void read(std::uint64_t begin, std::span<std::byte> out) const override {
    std::call_once(is_checked_, [&] {
      if (zero_points_.are_middle(0, groups_)) return;
      throw Error(ErrorCode::kCorrupt, where_ +
                                           ": the configuration calls it symmetric, and its zero points are not; "
                                           "write \"sym\": false there");
    });
    scales_->read(begin, out);
  }

 private:
  std::unique_ptr<TensorBytes> scales_;
  ZeroPointRows zero_points_;
  std::int64_t groups_;
  std::string where_;
  mutable std::once_flag is_checked_;
};

enum class ColumnOrder : std::uint8_t { kPlain, kOwn, kUneven };  // uneven: groups of different sizes

class GptqTensors {
 public:
  GptqTensors(Checkpoint& checkpoint, const GptqConfig& config)
      : checkpoint_(checkpoint), config_(config), computed_(checkpoint) {}

  std::vector<TensorRecord> run() {
    const std::vector<StoredTensor> tensors = checkpoint_.tensors;  // finish() changes the original
    const std::set<std::string, std::less<>> expected = expected_names();
    for (const StoredTensor& tensor : tensors) {
      if (!tensor.name.ends_with(kGptqCodes)) continue;
      const std::string module = read(tensor);
      if (!expected.empty() && !expected.contains(module + ".bias")) leave_out_zero_bias(module);
    }
    computed_.finish();
    add_notes();
    return computed_.take_records();
  }

 private:
  // Of the family's tensors; none: it is not known, or something of it is not.
  std::set<std::string, std::less<>> expected_names() const try {
    if (!checkpoint_.architecture) return {};
    std::set<std::string, std::less<>> out;
    const models::ModelConfig config = checkpoint_.model_config();
    for (models::ExpectedTensor& tensor : models::Architecture::expected(config)) out.insert(std::move(tensor.name));
    return out;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return {};
  }

  // AutoGPTQ gave every linear a bias.
  void leave_out_zero_bias(const std::string& module) {
    const StoredTensor* bias = checkpoint_.find(module + ".bias");
    if (!bias) return;
    std::vector<std::byte> bytes(bias->size_bytes);
    read_stored(checkpoint_, *bias, 0, bytes);
    if (std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; })) return;
    computed_.consume(*bias);
    ++biases_;
  }

  const StoredTensor& matrix(const std::string& module, const char* suffix, const std::string& where) const {
    const StoredTensor& found = part_of(checkpoint_, module + suffix, where);
    if (found.shape.size() != 2 || found.shape[0] < 1 || found.shape[1] < 1) fail_part(found, where, "a matrix");
    return found;
  }

  [[noreturn]] static void fail_part(const StoredTensor& part, const std::string& where, const std::string& wanted) {
    throw Error(ErrorCode::kCorrupt, where + ": " + in_quotes(part.name) + " is stored as " +
                                         std::string(name(part.dtype)) + " " + printable(part.shape) + ", wanted " +
                                         wanted);
  }

  Parts parts_of(const StoredTensor& codes) const {
    std::string module = codes.name.substr(0, codes.name.size() - std::string_view(kGptqCodes).size());
    const std::string where =
        printable_path(checkpoint_.data_files[codes.file]->path()) + ": tensor " + in_quotes(module + ".weight");
    const StoredTensor* groups =
        config_.packing == GptqPacking::kAwq ? nullptr : checkpoint_.find(module + kGptqGroups);
    Parts out{module,
              where,
              matrix(module, kGptqCodes, where),
              matrix(module, kGptqZeroPoints, where),
              matrix(module, kGptqScales, where),
              groups};
    for (const StoredTensor* part : {&out.codes, &out.zero_points, out.groups}) {
      if (part && part->dtype != Dtype::kInt32) fail_part(*part, where, "int32");
    }
    if (groups && (groups->shape.size() != 1 || groups->shape[0] < 1)) fail_part(*groups, where, "a row");
    if (!is_weight_dtype(out.scales.dtype)) fail_unsupported(where, std::string(name(out.scales.dtype)) + " scales");
    return out;
  }

  // By name, else the first format that the shapes bear out.
  std::pair<LinearFormat, Size> format_of(const Parts& parts) const {
    const auto own = config_.by_module.find(parts.module);
    const std::span<const LinearFormat> formats =
        own == config_.by_module.end() ? std::span(config_.formats) : std::span(&own->second, 1);
    for (const LinearFormat& format : formats) {
      if (const auto size = size_in(parts, format, config_.packing)) return {format, *size};
    }
    throw Error(ErrorCode::kCorrupt, parts.where + ": codes " + printable(parts.codes.shape) + ", zero points " +
                                         printable(parts.zero_points.shape) + ", scales " +
                                         printable(parts.scales.shape) +
                                         (parts.groups ? ", g_idx " + printable(parts.groups->shape) : "") +
                                         " fit no bits and group_size of " + config_.where);
  }

  // Plain: column k is of group k / group_size. All of them 0: nobody filled them in.
  ColumnOrder order_of(const Parts& parts, const Size& size) const {
    if (!parts.groups) return ColumnOrder::kPlain;
    const std::vector<std::int32_t> groups = read_groups(stored_groups(parts), size.in, size.groups);
    if (std::ranges::count(groups, 0) == size.in) return ColumnOrder::kPlain;
    for (std::int64_t k = 0; k < size.in; ++k) {
      if (groups[static_cast<std::size_t>(k)] != k / size.group_size)
        return have_equal_sizes(groups, size.groups) ? ColumnOrder::kOwn : ColumnOrder::kUneven;
    }
    return ColumnOrder::kPlain;
  }

  StoredGroups stored_groups(const Parts& parts) const {
    return {checkpoint_.data_files[parts.groups->file], parts.groups->offset, parts.groups->name};
  }

  StoredMatrix stored_matrix(const StoredTensor& tensor) const {
    const auto rows = static_cast<std::uint64_t>(tensor.shape[0]);
    return {checkpoint_.data_files[tensor.file], tensor.offset, rows, tensor.size_bytes / rows};
  }

  std::unique_ptr<TensorBytes> codes_of(const Parts& parts) const {
    if (config_.packing == GptqPacking::kAwq) return std::make_unique<AwqCodes>(stored_matrix(parts.codes));
    return std::make_unique<TransposedElements>(stored_matrix(parts.codes), 4);
  }

  std::unique_ptr<TensorBytes> scales_of(const Parts& parts) const {
    return std::make_unique<TransposedElements>(stored_matrix(parts.scales),
                                                static_cast<std::uint64_t>(size_bytes(parts.scales.dtype)));
  }

  std::unique_ptr<TensorBytes> zero_points_of(const Parts& parts, const ZeroPointRows& rows) const {
    return std::make_unique<TransposedZeroPoints>(stored_matrix(parts.zero_points), rows.map(), rows.mask());
  }

  // Returns the module's name.
  std::string read(const StoredTensor& codes) {
    const Parts parts = parts_of(codes);
    const auto [format, size] = format_of(parts);
    const ColumnOrder order = order_of(parts, size);
    const ZeroPointRows zero_points(checkpoint_, parts, config_.packing, format.bits, size.out);
    // The first group decides, so that nothing else is read now; SymmetricScales looks at the others in time.
    const bool is_symmetric = format.is_symmetric && zero_points.are_middle(0, 1);
    for (const char* part : {kGptqCodes, kGptqZeroPoints, kGptqScales, kGptqGroups}) {
      if (const StoredTensor* found = checkpoint_.find(parts.module + part)) computed_.consume(*found);
    }
    const bool is_held = size.in % size.group_size == 0 && (format.bits == 4 || is_symmetric);
    if (is_held && order != ColumnOrder::kUneven) {
      reordered_ += order == ColumnOrder::kOwn;
      add_packed(parts, format, size, zero_points, is_symmetric, order == ColumnOrder::kOwn);
    } else {
      ++computed_values_;
      add_values(parts, format, size, zero_points, order != ColumnOrder::kPlain);
    }
    return parts.module;
  }

  void add_packed(const Parts& parts, const LinearFormat& format, const Size& size, const ZeroPointRows& zero_points,
                  bool is_symmetric, bool has_order) {
    TensorRecord record;
    record.name = parts.module + ".weight";
    record.shape = {size.out, size.in};
    record.scheme =
        &scheme(format.bits == 8 ? SchemeId::kSymInt8 : (is_symmetric ? SchemeId::kSymInt4 : SchemeId::kAsymInt4));
    record.group_size = size.group_size;
    record.scale_dtype = parts.scales.dtype;
    PackedBytes bytes{codes_of(parts), scales_of(parts), nullptr, nullptr};
    if (has_order) {
      const ColumnGroups groups{stored_groups(parts), size.in, size.groups};
      bytes.codes = std::make_unique<SortedCodes>(std::move(bytes.codes), groups, format.bits);
      bytes.column_order = std::make_unique<SortedOrder>(groups);
    }
    if (is_symmetric) {
      bytes.scales = std::make_unique<SymmetricScales>(std::move(bytes.scales), zero_points, size.groups, parts.where);
    } else {
      bytes.zero_points = zero_points_of(parts, zero_points);
    }
    computed_.add_packed(std::move(record), std::move(bytes), parts.codes.file);
  }

  void add_values(const Parts& parts, const LinearFormat& format, const Size& size, const ZeroPointRows& zero_points,
                  bool has_order) {
    GroupedWeight weight{
        format.bits, size.out,           size.in,         size.groups,      size.group_size,
        {},          parts.scales.dtype, codes_of(parts), scales_of(parts), zero_points_of(parts, zero_points)};
    if (has_order) weight.order = stored_groups(parts);
    computed_.add_values(parts.module + ".weight", {size.out, size.in},
                         std::make_unique<GroupedValues>(std::move(weight)), parts.codes.file);
  }

  void add_notes() {
    if (biases_ > 0)
      checkpoint_.notes.push_back(std::to_string(biases_) +
                                  " biases of zeros, which this family does not have, are left out");
    if (reordered_ > 0)
      checkpoint_.notes.push_back(std::to_string(reordered_) +
                                  " tensors have their columns grouped in an order of their own (desc_act); the order "
                                  "is kept beside the codes, and activations are put into it");
    if (computed_values_ > 0)
      checkpoint_.notes.push_back(std::to_string(computed_values_) +
                                  " tensors are read as float32 (32 bits a weight) with the same values: no scheme "
                                  "here holds 8 bits with zero points, or groups of different sizes; to quantise them "
                                  "is to do it a second time");
  }

  Checkpoint& checkpoint_;
  const GptqConfig& config_;
  ComputedTensors computed_;
  std::int64_t reordered_ = 0, computed_values_ = 0, biases_ = 0;
};

}  // namespace

std::vector<TensorRecord> read_gptq(Checkpoint& checkpoint, const JsonField& config) {
  return GptqTensors(checkpoint, read_gptq_config(config)).run();
}
std::vector<TensorRecord> read_awq(Checkpoint& checkpoint, const JsonField& config) {
  return GptqTensors(checkpoint, read_awq_config(config)).run();
}
std::vector<TensorRecord> read_auto_round(Checkpoint& checkpoint, const JsonField& config) {
  return GptqTensors(checkpoint, read_auto_round_config(config)).run();
}

}  // namespace halfbyte::files

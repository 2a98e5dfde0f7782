#include "loader/files/formats/gguf/gguf.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/parts.h"
#include "loader/files/formats/gguf/tensor_bytes.h"
#include "loader/files/formats/gguf/tokenizer.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/row_bytes.h"
#include "loader/files/translation.h"

namespace halfbyte::files {
namespace {

// A tensor of halfbyte's: a whole one of the file's, or an expert's share of it.
struct Target {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t offset;  // in the file
  const GgmlType* type;
  RowOrder order;
  float shift = 0;  // added to every value
};

std::int64_t columns_of(const Target& target) { return target.shape.empty() ? 1 : target.shape.back(); }

std::vector<std::byte> bytes_of_shape(const std::vector<std::int64_t>& shape) {
  const auto bytes = std::as_bytes(std::span(shape));
  return {bytes.begin(), bytes.end()};
}

std::string with_expert(std::string name, std::int64_t expert) {
  return name.replace(name.find("{}"), 2, std::to_string(expert));
}

class GgufTensors {
 public:
  GgufTensors(const GgufParts& parts, const GgufFamily* family, Checkpoint& checkpoint)
      : parts_(parts), family_(family), checkpoint_(checkpoint) {
    if (!family) return;
    const std::string prefix = std::string(family->architecture) + ".attention.head_count";
    heads_ = head_count(prefix).value_or(0);
    key_heads_ = head_count(prefix + "_kv").value_or(heads_);
    layers_ = gguf_layers(parts.front(), *family);
    has_layers_ahead_ = parts.front().integer(std::string(family->architecture) + "." + kLayersAhead).value_or(0) > 0;
  }

  std::vector<TensorRecord> run() {
    for (const GgufFile& part : parts_) {
      checkpoint_.data_files.push_back(std::const_pointer_cast<InputFile>(part.shared_file()));
      checkpoint_.data_offsets.push_back(part.data_offset());
    }
    for (file_ = 0; file_ < parts_.size(); ++file_) {
      Translation translation(checkpoint_, parts_[file_].file().path());
      for (const GgufTensor& tensor : parts_[file_].tensors()) add_tensor(tensor, translation);
      translation.finish();
    }
    add_notes();
    return std::move(records_);
  }

 private:
  std::optional<std::int64_t> head_count(const std::string& key) const {
    const GgufFile& file = parts_.front();
    if (!file.is_list(key)) return file.integer(key);
    const std::vector<std::int64_t> layers = *file.integers(key);
    return layers.empty() ? std::nullopt : std::optional(layers.front());
  }

  RowOrder order_of(const GgufTensor& tensor, HeadRows rows) const {
    const std::int64_t count = tensor.shape.empty() ? 1 : tensor.shape.front();
    if (!family_ || !family_->has_metas_rotation || rows == HeadRows::kNone) return {count, 0};
    const std::int64_t heads = rows == HeadRows::kQuery ? heads_ : key_heads_;
    if (heads >= 1 && count % heads == 0 && count / heads % 2 == 0) return {count, heads};
    parts_[file_].fail(ErrorCode::kCorrupt, "tensor " + in_quotes(tensor.name) + " has " + std::to_string(count) +
                                                " rows, which " + std::to_string(heads) + " heads do not share");
  }

  // Of a layer behind the last.
  bool is_ahead(const std::string& name) const {
    if (!has_layers_ahead_ || !name.starts_with("blk.")) return false;
    std::int64_t layer = 0;
    const char* const begin = name.data() + 4;
    const auto read = std::from_chars(begin, name.data() + name.size(), layer);
    return read.ec == std::errc() && layer >= layers_;
  }

  void add_tensor(const GgufTensor& tensor, Translation& translation) {
    if (is_ahead(tensor.name)) {
      ++ahead_;
      return;
    }
    const auto known = family_ ? name_of(tensor.name, *family_, family_of(*family_).namings.front()) : std::nullopt;
    if (!known && family_ && is_rope_tensor(tensor.name)) return;
    if (!known && family_) unknown_.push_back(tensor.name);
    if (known && known->is_stack) return add_experts(*known, tensor, translation);
    Target target{known ? known->name : tensor.name, tensor.shape, tensor.offset, tensor.type, {}};
    target.order = order_of(tensor, known ? known->heads : HeadRows::kNone);
    if (known && known->is_norm && family_->adds_one_to_norms) target.shift = -1;
    if (tensor.shape.size() == 3) target.order.rows = tensor.shape[0] * tensor.shape[1];
    add(target, translation);
  }

  void add_experts(const GgufName& known, const GgufTensor& tensor, Translation& translation) {
    if (tensor.shape.size() != 3) {
      parts_[file_].fail(ErrorCode::kCorrupt, "tensor " + in_quotes(tensor.name) + " of shape " +
                                                  printable(tensor.shape) + " is no stack of experts");
    }
    const std::int64_t experts = tensor.shape.front();
    const std::uint64_t each = tensor.size_bytes / static_cast<std::uint64_t>(experts);
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      add({with_expert(known.name, expert),
           {tensor.shape[1], tensor.shape[2]},
           tensor.offset + static_cast<std::uint64_t>(expert) * each,
           tensor.type,
           {tensor.shape[1], 0}},
          translation);
    }
  }

  void add(const Target& target, Translation& translation) {
    const bool is_matrix = target.shape.size() == 2 || target.shape.size() == 3;
    if (target.type->exact && is_matrix && target.shift == 0) {
      add_packed(target, translation);
    } else if (!target.type->dtype || target.shift != 0) {
      add_values(target, translation);
    } else {
      add_dense(target, translation);
    }
  }

  static std::uint64_t values_of(const Target& target) {
    std::uint64_t out = 1;
    for (const std::int64_t length : target.shape) out *= static_cast<std::uint64_t>(length);
    return out;
  }

  const std::shared_ptr<DataFile>& file() const { return checkpoint_.data_files[file_]; }

  void add_dense(const Target& target, Translation& translation) {
    const Dtype dtype = *target.type->dtype;
    const std::uint64_t size = values_of(target) * target.type->block_bytes;
    if (target.order.heads == 0) {
      checkpoint_.tensors.push_back({target.name, dtype, target.shape, file_, target.offset, size});
      return;
    }
    translation.add(target.name, dtype, target.shape,
                    std::make_unique<OrderedRows>(file(), target.offset,
                                                  size / static_cast<std::uint64_t>(target.order.rows), target.order));
  }

  std::unique_ptr<TensorBytes> converted(const Target& target, ConvertBlocks* convert, std::uint64_t bytes_each) const {
    const auto columns =
        static_cast<std::uint64_t>(target.shape.size() == 1 && target.order.heads ? 1 : columns_of(target));
    RowOrder order = target.order;
    if (order.heads == 0) order.rows = static_cast<std::int64_t>(values_of(target) / columns);
    return std::make_unique<ConvertedBlocks>(file(), *target.type, BlockRows{target.offset, columns, order}, convert,
                                             bytes_each);
  }

  void add_packed(const Target& target, Translation& translation) {
    const ExactScheme& exact = *target.type->exact;
    TensorRecord record;
    record.name = target.name;
    record.shape = target.shape;
    record.scheme = &scheme(exact.scheme);
    record.group_size = static_cast<std::int64_t>(target.type->block_values);
    record.scale_dtype = Dtype::kFloat16;
    record.parts = packed_part_names(record);
    const auto rows = static_cast<std::int64_t>(values_of(target)) / columns_of(target);
    const std::int64_t row_bytes = packed_row_bytes(*record.scheme, columns_of(target));
    const std::int64_t groups = columns_of(target) / record.group_size;
    translation.add(record.parts[Part::kCodes], Dtype::kInt32, {rows, row_bytes / 4},
                    converted(target, exact.codes, static_cast<std::uint64_t>(row_bytes / groups)));
    translation.add(record.parts[Part::kScale], Dtype::kFloat16, {rows, groups}, converted(target, exact.scales, 2));
    translation.add(record.parts[Part::kShape], Dtype::kInt64, {static_cast<std::int64_t>(target.shape.size())},
                    std::make_unique<ConstantBytes>(bytes_of_shape(target.shape)));
    if (exact.offsets)
      translation.add(record.parts[Part::kOffset], Dtype::kFloat16, {rows, groups},
                      converted(target, exact.offsets, 2));
    const std::int64_t halves = exact.offsets ? 2 : 1;  // of each group
    record.size_bytes = static_cast<std::uint64_t>(rows * (row_bytes + 2 * halves * groups)) +
                        target.shape.size() * sizeof(std::int64_t);
    records_.push_back(std::move(record));
  }

  // As float32: what a type of blocks comes to, or what an addition was undone in.
  void add_values(const Target& target, Translation& translation) {
    if (!target.type->to_float32) {
      parts_[file_].fail(ErrorCode::kUnsupported,
                         "tensor " + in_quotes(target.name) + " is a norm of type " + std::string(target.type->name));
    }
    auto values = converted(target, target.type->to_float32, target.type->block_values * sizeof(float));
    if (target.shift != 0) values = std::make_unique<ShiftedValues>(std::move(values), target.shift);
    translation.add(target.name, Dtype::kFloat32, target.shape, std::move(values));
    TensorRecord record;
    record.name = target.name;
    record.shape = target.shape;
    if (target.type->dtype) record.original_dtype = target.type->dtype;
    record.parts[Part::kCodes] = target.name;
    record.size_bytes = values_of(target) * sizeof(float);
    records_.push_back(std::move(record));
    if (!target.type->dtype) ++dequantised_[target.type->name];
  }

  void add_notes() const {
    std::string counts;
    for (const auto& [type, count] : dequantised_)
      counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " of " + std::string(type);
    if (ahead_ > 0) {
      checkpoint_.notes.push_back(std::to_string(ahead_) +
                                  " tensors of layers that predict several tokens ahead are left out");
    }
    if (!counts.empty()) {
      checkpoint_.notes.push_back("tensors that no scheme here says exactly are dequantised to float32: " + counts);
    }
    if (unknown_.empty()) return;
    checkpoint_.notes.push_back(std::to_string(unknown_.size()) + " tensors are none that the family " +
                                std::string(family_->model_type) + " has, " + in_quotes(unknown_.front()) +
                                " among them; they keep their names");
  }

  const GgufParts& parts_;
  const GgufFamily* family_;
  Checkpoint& checkpoint_;
  std::int64_t heads_ = 0, key_heads_ = 0, layers_ = 0;
  bool has_layers_ahead_ = false;
  int ahead_ = 0;  // tensors left out
  std::size_t file_ = 0;
  std::vector<TensorRecord> records_;
  std::map<std::string_view, int> dequantised_;  // tensors by type
  std::vector<std::string> unknown_;
};

void describe_unknown(const GgufFile& file, Checkpoint& checkpoint) {
  const auto architecture = file.text("general.architecture");
  checkpoint.notes.push_back("the architecture " + in_quotes(architecture.value_or("")) +
                             " is not known: the tensors keep the names that the file gives them");
}

}  // namespace

bool is_gguf(const InputFile& file) { return starts_as_gguf(file); }

std::vector<std::string> pick_gguf(const fs::path& directory, const std::vector<std::string>& names) {
  return choose_gguf_files(directory, names);
}

std::vector<TensorRecord> open_gguf(std::span<const fs::path> paths, Checkpoint& checkpoint) {
  const GgufParts parts = open_gguf_parts(paths[0]);
  const GgufFamily* family = find_gguf_family(parts.front());
  if (family) {
    checkpoint.config = gguf_config(parts, *family, checkpoint.notes);
  } else {
    describe_unknown(parts.front(), checkpoint);
  }
  checkpoint.says_its_model = true;
  add_gguf_tokenizer(std::make_shared<GgufFile>(parts.front()), checkpoint);
  return GgufTensors(parts, family, checkpoint).run();
}

}  // namespace halfbyte::files

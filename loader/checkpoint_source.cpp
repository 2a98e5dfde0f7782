#include "loader/checkpoint_source.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <halfbyte/error.h>

#include "loader/files/checkpoint_hash.h"
#include "loader/files/column_order.h"
#include "loader/files/finite.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/parallel.h"
#include "loader/files/scale_reader.h"
#include "loader/files/tensor_hash.h"
#include "models/dtype_rules.h"
#include "models/modules/overflow.h"
#include "models/sessions/pass_watch.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte {
namespace {

using files::Part;
using files::TensorRecord;
using models::Role;

bool is_aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

at::ScalarType torch_dtype(const std::string& name, Dtype dtype) {
  if (const auto type = to_torch(dtype)) return *type;
  throw Error(ErrorCode::kUnsupported,
              name + " is stored as " + std::string(halfbyte::name(dtype)) + ", which LibTorch has no tensors of");
}

// Checked, and as indices are in LibTorch.
at::Tensor column_order(const files::Checkpoint& checkpoint, const TensorRecord& record) {
  const std::vector<std::int32_t> order = files::read_column_order(checkpoint, record);
  at::Tensor out = at::empty({static_cast<std::int64_t>(order.size())}, at::kLong);
  std::ranges::copy(order, out.mutable_data_ptr<std::int64_t>());
  return out;
}

// `wide`: the float32 that `value` was rounded from.
at::Tensor with_ends(const TensorRecord& record, const at::Tensor& wide, at::Tensor value) {
  const std::span from(wide.const_data_ptr<float>(), static_cast<std::size_t>(wide.numel()));
  auto* to = value.mutable_data_ptr<at::Half>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!std::isfinite(from[i]) || std::isfinite(static_cast<float>(to[i]))) continue;
    if (files::is_past_end(record, Dtype::kFloat16, from[i]))
      to[i] = std::copysign(largest_value(Dtype::kFloat16), from[i]);
  }
  return value;
}

}  // namespace

CheckpointSource::CheckpointSource(const files::Checkpoint& checkpoint, const LoadOptions& options, LoadReport& report,
                                   at::Device device)
    : checkpoint_(checkpoint),
      options_(options),
      report_(report),
      choice_(checkpoint, options),
      maps_(checkpoint.data_files.size()),
      device_(device) {
  if (options.verify == Verification::kHashes) files::check_config_hash(checkpoint);
}

void CheckpointSource::verify(const TensorRecord& record) {
  if (options_.verify != Verification::kHashes || !verified_.insert(record.name).second) return;
  const bool is_compared = files::check_tensor_hash(checkpoint_, record);
  ++(is_compared ? report_.verified_tensors : report_.unhashed_tensors);
}

at::Tensor CheckpointSource::stored(const std::string& name) {
  const files::StoredTensor& tensor = *checkpoint_.find(name);
  return mapped(tensor, tensor.shape, torch_dtype(name, tensor.dtype));
}

// Memory of its own, filled by all threads.
at::Tensor CheckpointSource::translated(const files::StoredTensor& tensor, at::IntArrayRef shape,
                                        at::ScalarType type) const {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  at::Tensor out = at::empty(shape, type);
  const std::span bytes(static_cast<std::byte*>(out.mutable_data_ptr()), tensor.size_bytes);
  files::parallel_for((bytes.size() + kPiece - 1) / kPiece, 0, [&](std::size_t piece) {
    const std::uint64_t begin = piece * kPiece;
    files::read_stored(checkpoint_, tensor, begin, bytes.subspan(begin, std::min(kPiece, bytes.size() - begin)));
  });
  return out;
}

// The bytes of a stored tensor as a tensor of this shape and type, which may lie unaligned.
at::Tensor CheckpointSource::mapped(const files::StoredTensor& tensor, at::IntArrayRef shape, at::ScalarType type) {
  if (files::is_translated(checkpoint_, tensor)) return translated(tensor, shape, type);
  auto& map = maps_.at(tensor.file);
  if (!map) {
    map = files::map_data_file(checkpoint_, tensor.file);
    map->read_ahead();
  }
  return at::from_blob(
      map->bytes().data() + tensor.offset, shape, [map](void*) {}, at::TensorOptions().dtype(type));
}

// Scales as the kernels take them: a matrix of floats, or of bytes with row scales. Nested ones are expanded to
// float32, those of less than 8 bits to bytes.
at::Tensor CheckpointSource::scales(const TensorRecord& record) {
  const auto [rows, columns] = files::matrix_shape(record.shape);
  const std::vector<std::int64_t> shape{rows, columns / record.group_size};
  if (files::has_plain_scales(record) || record.scheme->scale_bits == 8)
    return mapped(*checkpoint_.find(record.parts[Part::kScale]), shape, torch_dtype(record.name, record.scale_dtype));
  if (has_row_scales(*record.scheme)) {
    at::Tensor out = at::empty(shape, at::kChar);
    const std::span bytes(static_cast<std::byte*>(out.mutable_data_ptr()), static_cast<std::size_t>(out.numel()));
    files::ScaleReader(checkpoint_, record).read_bytes(0, bytes);
    return out;
  }
  at::Tensor out = at::empty(shape, at::kFloat);
  files::ScaleReader(checkpoint_, record)
      .read(0, {out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())});
  return out;
}

LowBitTensor CheckpointSource::read_packed(const TensorRecord& record) {
  LowBitTensor tensor;
  const auto [rows, columns] = files::matrix_shape(record.shape);
  const std::int64_t words = packed_row_bytes(*record.scheme, columns) / 4;
  tensor.codes = mapped(*checkpoint_.find(record.parts[Part::kCodes]), {rows, words}, at::kInt);
  tensor.scales = scales(record);
  for (const LowBitTensor::Extra& extra : LowBitTensor::extras()) {
    if (!record.parts.has(extra.part)) continue;
    tensor.*extra.tensor =
        extra.part == Part::kColumnOrder ? column_order(checkpoint_, record) : stored(record.parts[extra.part]);
  }
  tensor.scheme = record.scheme;
  tensor.in_features = columns;
  tensor.group_size = record.group_size;
  tensor.dtype = torch_dtype(record.name, recorded_dtype(record));
  return tensor;
}

at::Tensor CheckpointSource::read(const TensorRecord& record, at::ScalarType type) {
  at::Tensor value = record.scheme ? read_packed(record).dequantize(type).view(record.shape)
                                   : stored(record.parts[Part::kCodes]).to(type);
  const bool is_narrowed = type == at::kHalf && (record.scheme || record.stored_dtype != Dtype::kFloat16);
  return is_narrowed && !models::is_finite(value) ? within_float16(record, value) : value;
}

at::Tensor CheckpointSource::within_float16(const TensorRecord& record, at::Tensor value) {
  const at::Tensor wide = read(record, at::kFloat);
  if (record.scheme) value = with_ends(record, wide, std::move(value));
  const at::Tensor lost = wide.isfinite().logical_and(value.isfinite().logical_not());
  const auto count = lost.sum().item<std::int64_t>();
  if (count == 0) {
    if (!models::is_finite(value))
      report_.notes.push_back(record.name + " holds NaN or infinite values in the checkpoint");
    return value;
  }
  const double largest = wide.masked_select(lost).abs().max().item<double>();
  std::ostringstream problem;
  problem << record.name << ": " << count << " of " << value.numel()
          << " values do not fit float16, which ends at 65504 (the largest is " << largest << ")";
  throw Error(ErrorCode::kContract, problem.str() + "; load with " + Option::kDtype + " amp:bfloat16, or with " +
                                        Option::kOverrides + " '" + record.name + "=float32'");
}

at::Tensor CheckpointSource::load(const TensorRecord& record, LoadedTensor& line) {
  models::PassWatch::check();  // who loads a layer between passes may be waited for
  verify(record);
  const DtypeChoice::Chosen chosen = choice_.of(record.name);
  const Dtype wanted = models::loaded_dtype(chosen.policy, choice_.role_of(record), recorded_dtype(record), false);
  const at::ScalarType type = torch_dtype(record.name, wanted);
  at::Tensor value = read(record, type);
  if (record.scheme) {
    add_note(line, "dequantised from " + storage_of(record));
    line.placement = Placement::kCast;
  } else if (record.stored_dtype != wanted) {
    line.placement = Placement::kCast;
  } else if (const std::string note = translation_note(checkpoint_, record); !note.empty()) {
    add_note(line, note);
    line.placement = Placement::kCopied;
  } else if (!is_aligned(value.const_data_ptr(), value.element_size())) {
    value = value.clone();
    line.placement = Placement::kCopied;
  }
  add_note(line, chosen.why);
  if (leaves_the_cpu(line)) value = value.to(device_);
  line.bytes = static_cast<std::uint64_t>(value.nbytes());
  return value;
}

bool CheckpointSource::leaves_the_cpu(LoadedTensor& line) const {
  if (device_.is_cpu()) return false;
  if (line.placement == Placement::kCast && line.note.empty()) line.note = "cast before it was moved";
  line.placement = Placement::kMoved;
  return true;
}

at::Tensor CheckpointSource::dense(const std::string& name) {
  const TensorRecord& tensor = record_of(checkpoint_, name);
  LoadedTensor line = line_of(name, tensor);
  auto found = shared_.find(tensor.name);
  if (found == shared_.end()) {
    found = shared_.emplace(tensor.name, load(tensor, line)).first;
  } else {
    line.note = "tied to " + tensor.name;
  }
  line.loaded = halfbyte::name(*from_torch(found->second.scalar_type()));
  report_.tensors.push_back(std::move(line));
  return found->second;
}

LowBitTensor CheckpointSource::packed(const std::string& name) {
  const TensorRecord& tensor = record_of(checkpoint_, name);
  verify(tensor);
  LoadedTensor line = packed_line(checkpoint_, choice_, name);
  const bool is_copied = line.placement == Placement::kCopied, leaves = leaves_the_cpu(line);
  const auto kept = kept_.find(tensor.name);
  LowBitTensor value = kept == kept_.end() ? read_packed(tensor) : kept->second;
  if (kept == kept_.end() && (leaves || is_copied)) {
    if (leaves) value = value.to(device_);
    kept_.emplace(tensor.name, value);
  }
  report_.tensors.push_back(std::move(line));
  return value;
}

models::LinearWeights CheckpointSource::weight(const std::string& name) {
  models::LinearWeights weights;
  weights.policy = choice_.of(name).policy;
  if (record_of(checkpoint_, name).scheme) {
    weights.weight = packed(name);
  } else {
    weights.weight = dense(name);
  }
  return weights;
}

models::LinearWeights CheckpointSource::embedding(const std::string& module) { return weight(module + ".weight"); }

models::LinearWeights CheckpointSource::linear(const std::string& module, bool has_bias) {
  const std::string name = module + ".weight";
  models::LinearWeights weights = weight(name);
  report_.tensors.back().operand = choice_.operand_of(name);
  if (has_bias) weights.bias = dense(module + ".bias");
  return weights;
}

models::LinearWeights CheckpointSource::stacked(const std::string& name, std::int64_t index, bool holds_columns) {
  const TensorRecord& tensor = record_of(checkpoint_, name);
  auto found = stacks_.find(name);
  if (found == stacks_.end()) {
    Stack stack = tensor.scheme ? Stack(packed(name)) : Stack(dense(name));
    found = stacks_.emplace(name, std::move(stack)).first;
    report_.tensors.back().operand = choice_.operand_of(name);
  }
  const DtypePolicy policy = choice_.of(name).policy;
  if (const auto* values = std::get_if<at::Tensor>(&found->second)) {
    const at::Tensor matrix = values->select(0, index);
    const bool is_turned = holds_columns && !checkpoint_.row_stacks.contains(name);
    return {is_turned ? matrix.t().contiguous() : matrix, std::nullopt, policy};
  }
  LowBitTensor one = std::get<LowBitTensor>(found->second);
  const std::int64_t rows = tensor.shape.at(1);
  one.codes = one.codes.narrow(0, index * rows, rows);
  one.scales = one.scales.narrow(0, index * rows, rows);
  for (const LowBitTensor::Extra& extra : LowBitTensor::extras()) {  // a stack has no order of columns
    auto& part = one.*extra.tensor;
    const std::int64_t share = part ? part->size(0) / tensor.shape.at(0) : 0;
    if (part) part = part->narrow(0, index * share, share);
  }
  return {one, std::nullopt, policy};
}

at::ScalarType CheckpointSource::derived_buffer_dtype(const std::string& name) {
  return weight_scalar_type(note_derived_buffer(checkpoint_, choice_, name, report_));
}

}  // namespace halfbyte

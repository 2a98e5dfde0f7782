#include "loader/fused_source.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "loader/files/column_order.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/parallel.h"
#include "loader/files/scale_reader.h"
#include "loader/report_lines.h"
#include "models/cpu/damage.h"
#include "models/dtype_rules.h"

namespace halfbyte {
namespace {

using files::Part;
using files::TensorRecord;
using models::Role;
using models::cpu::FusedValues;
using models::cpu::FusedWeight;

constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;  // of what is computed, that a thread takes at a time

bool is_matrix(Role role) { return role == Role::kLinear || role == Role::kHead || role == Role::kEmbedding; }

std::int64_t count_of(const TensorRecord& record) {
  std::int64_t out = 1;
  for (const std::int64_t size : record.shape) out *= size;
  return out;
}

// Of a matrix, or of a stack of them, all rows.
std::pair<std::int64_t, std::int64_t> size_of(const TensorRecord& record) {
  const auto [rows, columns] = files::matrix_shape(record.shape);
  return {rows, columns};
}

constexpr std::int64_t kFields = 8;  // rows that share a word of zero points

// Rows of a matrix, from a multiple of kFields on where they have zero points.
quant::WeightMatrix rows_of(const quant::WeightMatrix& all, std::int64_t first, std::int64_t count) {
  quant::WeightMatrix out = all;
  out.out_features = count;
  out.rows += first * all.row_bytes();
  const std::int64_t scales = first * all.groups() * size_bytes(all.scale_dtype);
  if (out.scales) out.scales += scales;
  if (out.offsets) out.offsets += scales;
  if (out.row_scales) out.row_scales += first * size_bytes(Dtype::kBfloat16);
  if (out.zero_points)
    out.zero_points += first / kFields * all.groups() * static_cast<std::int64_t>(sizeof(std::int32_t));
  return out;
}

bool is_aligned(const std::byte* data, std::int64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0;
}

}  // namespace

FusedSource::FusedSource(const files::Checkpoint& checkpoint, const LoadOptions& options, quant::Arithmetic arithmetic,
                         LoadReport& report)
    : checkpoint_(checkpoint),
      arithmetic_(arithmetic),
      report_(report),
      choice_(checkpoint, options),
      maps_(checkpoint.data_files.size()) {}

bool FusedSource::refuse(const std::string& name, const std::string& what) {
  why_not_ = name + " " + what;
  return false;
}

std::byte* FusedSource::memory(std::size_t bytes) {
  const Bytes out(new std::byte[bytes]);
  memory_.push_back(out);
  return out.get();
}

const std::byte* FusedSource::bytes_of(const std::string& stored) {
  const files::StoredTensor& tensor = *checkpoint_.find(stored);
  if (!files::is_translated(checkpoint_, tensor)) {
    auto& map = maps_.at(tensor.file);
    if (!map) {
      map = files::map_data_file(checkpoint_, tensor.file);
      map->read_ahead();
      memory_.push_back(map);
    }
    return map->bytes().data() + tensor.offset;
  }
  const std::span out(memory(tensor.size_bytes), tensor.size_bytes);
  files::parallel_for((out.size() + kPiece - 1) / kPiece, 0, [&](std::size_t piece) {
    const std::uint64_t begin = piece * kPiece;
    files::read_stored(checkpoint_, tensor, begin, out.subspan(begin, std::min(kPiece, out.size() - begin)));
  });
  return out.data();
}

// As the kernels take them: a matrix of floats, or of bytes with row scales. Nested ones are expanded to float32, those
// of less than 8 bits to bytes.
void FusedSource::scales(const TensorRecord& record, quant::WeightMatrix& out) {
  out.scale_dtype = record.scale_dtype;
  if (files::has_plain_scales(record) || record.scheme->scale_bits == 8) {
    out.scales = bytes_of(record.parts[Part::kScale]);
    return;
  }
  const auto [rows, columns] = files::matrix_shape(record.shape);
  const auto count = static_cast<std::size_t>(rows * (columns / record.group_size));
  const bool are_bytes = has_row_scales(*record.scheme);
  out.scale_dtype = are_bytes ? Dtype::kInt8 : Dtype::kFloat32;
  std::byte* const values = memory(count * static_cast<std::size_t>(size_bytes(out.scale_dtype)));
  files::ScaleReader reader(checkpoint_, record);
  if (are_bytes)
    reader.read_bytes(0, {values, count});
  else
    reader.read(0, {reinterpret_cast<float*>(values), count});
  out.scales = values;
}

void FusedSource::order(const TensorRecord& record, FusedWeight& out) {
  const std::vector<std::int32_t> columns = files::read_column_order(checkpoint_, record);
  if (columns.empty()) return;
  auto* const order = reinterpret_cast<std::int64_t*>(memory(columns.size() * sizeof(std::int64_t)));
  std::ranges::copy(columns, order);
  out.order = {order, columns.size()};
}

void FusedSource::packed(const std::string& name, FusedWeight& out) {
  const TensorRecord& record = record_of(checkpoint_, name);
  const std::string note = translation_note(checkpoint_, record);
  if (const auto kept = kept_.find(record.name); kept != kept_.end()) {
    out = kept->second;
  } else {
    quant::WeightMatrix& matrix = out.matrix;
    std::tie(matrix.out_features, matrix.in_features) = size_of(record);
    matrix.scheme = record.scheme;
    matrix.group_size = record.group_size;
    matrix.rows = bytes_of(record.parts[Part::kCodes]);
    scales(record, matrix);
    for (const Part part : {Part::kZeroPoint, Part::kOffset, Part::kRowScale}) {
      if (record.parts.has(part)) matrix.*quant::operand_of(part) = bytes_of(record.parts[part]);
    }
    if (record.parts.has(Part::kColumnOrder)) order(record, out);
    if (!note.empty()) kept_.emplace(record.name, out);
  }
  report_.tensors.push_back(packed_line(checkpoint_, choice_, name));
}

// Values of one weight dtype in another. What float16 does not hold is for load_low_bit() to tell.
bool FusedSource::cast(const TensorRecord& record, Dtype wanted, LoadedTensor& line, const std::byte*& data) {
  if (record.scheme || !is_weight_dtype(record.stored_dtype) || !is_weight_dtype(wanted))
    return refuse(record.name, "is stored as " + storage_of(record) + " and used as " + std::string(name(wanted)));
  const std::int64_t count = count_of(record);
  std::byte* const out = memory(static_cast<std::size_t>(count * size_bytes(wanted)));
  const auto pieces =
      static_cast<std::size_t>((count + static_cast<std::int64_t>(kPiece) - 1) / static_cast<std::int64_t>(kPiece));
  files::parallel_for(pieces, 0, [&](std::size_t piece) {
    const std::int64_t begin = static_cast<std::int64_t>(piece * kPiece);
    quant::convert(data + begin * size_bytes(record.stored_dtype), record.stored_dtype,
                   out + begin * size_bytes(wanted), wanted,
                   std::min(static_cast<std::int64_t>(kPiece), count - begin));
  });
  if (wanted == Dtype::kFloat16 && models::cpu::count_not_finite({out, wanted, count}) > 0)
    return refuse(record.name, "does not fit float16");
  data = out;
  line.placement = Placement::kCast;
  return true;
}

bool FusedSource::dense(const std::string& name, FusedValues& out) {
  const TensorRecord& record = record_of(checkpoint_, name);
  LoadedTensor line = line_of(name, record);
  if (const auto found = shared_.find(record.name); found != shared_.end()) {
    out = found->second;
    line.note = "tied to " + record.name;
  } else {
    const DtypeChoice::Chosen chosen = choice_.of(record.name);
    out.dtype = models::loaded_dtype(chosen.policy, choice_.role_of(record), recorded_dtype(record), false);
    out.count = count_of(record);
    if (record.scheme) return refuse(record.name, "is packed and used dense");
    if (!is_weight_dtype(out.dtype)) return refuse(record.name, "is used as " + std::string(halfbyte::name(out.dtype)));
    const std::string note = translation_note(checkpoint_, record);
    out.data = bytes_of(record.parts[Part::kCodes]);
    if (record.stored_dtype != out.dtype) {
      if (!cast(record, out.dtype, line, out.data)) return false;
    } else if (!note.empty()) {
      add_note(line, note);
      line.placement = Placement::kCopied;
    } else if (!is_aligned(out.data, size_bytes(out.dtype))) {
      const auto bytes = static_cast<std::size_t>(out.count * size_bytes(out.dtype));
      out.data = static_cast<const std::byte*>(std::memcpy(memory(bytes), out.data, bytes));
      line.placement = Placement::kCopied;
    }
    add_note(line, chosen.why);
    line.bytes = static_cast<std::uint64_t>(out.count * size_bytes(out.dtype));
    shared_.emplace(record.name, out);
  }
  line.loaded = halfbyte::name(out.dtype);
  report_.tensors.push_back(std::move(line));
  return true;
}

// A weight that multiplies, or an embedding.
bool FusedSource::product(const std::string& name, FusedWeight& out) {
  const TensorRecord& record = record_of(checkpoint_, name);
  const std::optional<Dtype> operand = choice_.of(name).policy.operand();
  if (!operand) return refuse(name, "is multiplied in its own dtype");
  if (record.scheme) {
    packed(name, out);
  } else {
    FusedValues values;
    if (!dense(name, values)) return false;
    out.matrix.dense_dtype = values.dtype;
    out.matrix.rows = values.data;
    std::tie(out.matrix.out_features, out.matrix.in_features) = size_of(record);
  }
  out.operand = *operand;
  // Who wants this product's activation in float32 does not want it in 8 bits.
  out.arithmetic = *operand == Dtype::kFloat32 ? quant::Arithmetic::kFloat : arithmetic_;
  return true;
}

bool FusedSource::gather(const models::ModuleAt& module, models::cpu::FusedWeightSet& out) {
  FusedWeight weight;
  const Role role = module.row->role;
  if (is_matrix(role)) {
    if (!product(module.weight(), weight)) return false;
    if (role != Role::kEmbedding) report_.tensors.back().operand = choice_.operand_of(module.weight());
  } else if (!dense(module.weight(), weight.values)) {
    return false;
  }
  if (module.has_bias && !dense(module.bias(), weight.bias)) return false;
  weight.name = module.weight();
  weight.bias_name = module.bias();
  out.add(module.row->module, weight);
  return true;
}

bool FusedSource::gather_stack(const models::ModuleAt& module, const models::Naming& names,
                               models::cpu::FusedLayer& out) {
  const std::string name = module.weight();
  const TensorRecord& record = record_of(checkpoint_, name);
  if (record.shape.size() != 3 || module.row->role != Role::kLinear) return refuse(name, "is no stack of matrices");
  if (names.are_stacks_transposed && !record.scheme && !checkpoint_.row_stacks.contains(name))
    return refuse(name, "holds columns");
  FusedWeight all;
  if (!product(name, all)) return false;
  report_.tensors.back().operand = choice_.operand_of(name);
  const std::int64_t rows = record.shape[1];
  if (!all.order.empty() || (all.matrix.zero_points && rows % kFields != 0))
    return refuse(name, "is packed as a whole");
  for (std::size_t i = 0; i < out.experts.size(); ++i) {
    FusedWeight one = all;
    one.name = name;
    one.matrix = rows_of(all.matrix, static_cast<std::int64_t>(i) * rows, rows);
    out.experts[i].add(module.row->module, one);
  }
  return true;
}

bool FusedSource::gather(const models::ModelConfig& config, models::cpu::FusedWeights& out) {
  out.layers.resize(config.layers.size());
  for (std::size_t i = 0; i < out.layers.size(); ++i) {
    if (config.layers[i].has_experts) out.layers[i].experts.resize(static_cast<std::size_t>(config.moe.num_experts));
  }
  for (const models::ModuleAt& module : models::modules_of(config)) {
    bool is_taken = false;
    if (module.layer < 0) {
      is_taken = gather(module, out.modules);
    } else {
      models::cpu::FusedLayer& layer = out.layers.at(static_cast<std::size_t>(module.layer));
      is_taken = module.row->place == models::Place::kExperts ? gather_stack(module, *config.naming, layer)
                 : module.expert < 0                          ? gather(module, layer.modules)
                                     : gather(module, layer.experts.at(static_cast<std::size_t>(module.expert)));
    }
    if (!is_taken) return false;
  }
  for (const models::DerivedBuffer& buffer : models::Architecture::derived(config))
    note_derived_buffer(checkpoint_, choice_, buffer.name, report_);
  out.memory = memory_;
  return true;
}

}  // namespace halfbyte

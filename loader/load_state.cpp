#include <halfbyte/load_state.h>

#include <halfbyte/operators.h>

#include "loader/checkpoint_source.h"
#include "loader/files/family.h"
#include "loader/guarded.h"
#include "loader/torch_runtime.h"

namespace halfbyte {
namespace {

StateTensor take(CheckpointSource& source, const std::string& name, bool dequantize) {
  const files::TensorRecord& record = source.record(name);
  StateTensor tensor;
  if (record.scheme && !dequantize) {
    tensor.value = source.packed(name);
  } else {
    tensor.value = source.dense(name);
  }
  tensor.is_buffer = record.is_buffer;
  tensor.recorded = record.original_dtype;
  if (record.name != name) tensor.tied_to = record.name;
  return tensor;
}

State build(const files::Checkpoint& checkpoint, const StateOptions& options) {
  State state;
  state.report = begin_report(checkpoint, options.dtype);
  const DeviceChoice choice = begin_on_device(options.device, state.report);
  const LoadOptions load{
      .dtype = options.dtype, .keep_float32 = options.keep_float32, .verify = options.verify, .device = choice.device};
  check_patterns(checkpoint, load, tensor_names(checkpoint));
  CheckpointSource source(checkpoint, load, state.report, to_torch(choice.device));
  for (const files::TensorRecord& record : checkpoint.manifest.tensors) {
    state.tensors.emplace(record.name, take(source, record.name, options.dequantize));
  }
  for (const auto& [alias, owner] : checkpoint.manifest.ties) {
    state.tensors.emplace(alias, take(source, alias, options.dequantize));
  }
  for (const models::DerivedBuffer& buffer : checkpoint.manifest.buffers) {
    state.report.notes.push_back(buffer.name + " is not stored: a model derives it (" + buffer.how + ")");
  }
  if (!checkpoint.architecture && checkpoint.has_config()) {
    state.report.notes.push_back(files::family_subject(checkpoint) +
                                 " is not known: which buffers its model derives is not known either");
  }
  return state;
}

}  // namespace

const at::Tensor& StateTensor::dense() const {
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) return *tensor;
  throw Error(ErrorCode::kInvalidArgument, "a tensor in " + std::get<LowBitTensor>(value).description() +
                                               " is not dense; call dequantize() or load with .dequantize = true");
}

const LowBitTensor& StateTensor::low_bit() const {
  if (const auto* tensor = std::get_if<LowBitTensor>(&value)) return *tensor;
  throw Error(ErrorCode::kInvalidArgument, std::string("a tensor in ") +
                                               c10::toString(std::get<at::Tensor>(value).scalar_type()) +
                                               " is not packed; ask is_low_bit() first");
}

at::Tensor StateTensor::dequantize(std::optional<at::ScalarType> type) const {
  if (const auto* packed = std::get_if<LowBitTensor>(&value)) return packed->dequantize(type);
  const at::Tensor& tensor = std::get<at::Tensor>(value);
  return type ? tensor.to(*type) : tensor;
}

const StateTensor& State::at(std::string_view name) const {
  if (const auto found = tensors.find(name); found != tensors.end()) return found->second;
  throw Error(ErrorCode::kNotFound,
              "the state has no tensor \"" + std::string(name) + "\" among its " + std::to_string(size()));
}

State load_state(const std::filesystem::path& checkpoint, const StateOptions& options) {
  operators::register_operators();
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  return guarded(opened.directory.string(), [&] { return build(opened, options); });
}

}  // namespace halfbyte

#include "convert/calibrate/calibration.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <halfbyte/linear.h>
#include <halfbyte/operators.h>

#include "convert/calibrate/calibration_run.h"
#include "loader/guarded.h"
#include "loader/torch_runtime.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Files of layers that are open at a time: tensors are read in the order of the source, which is about theirs.
constexpr std::size_t kMostOpen = 8;

std::string hash_of_ids(const CalibrationTokens& tokens) {
  files::Hash128 out;
  for (const auto& sequence : tokens.sequences) {
    const auto length = static_cast<std::int64_t>(sequence.size());
    out.update(std::as_bytes(std::span(&length, 1)));
    out.update(std::as_bytes(std::span(sequence)));
  }
  return out.hex();
}

// What parts give each other and keep until the next but one meeting: the inputs of a layer, or where the quantised one
// is followed of one product with the change; and sums of them.
std::uint64_t exchanged_bytes(const models::ModelConfig& config, std::int64_t tokens, bool is_paired) {
  std::vector<std::uint64_t> widths{static_cast<std::uint64_t>(config.hidden_size),
                                    static_cast<std::uint64_t>(config.query_size()),
                                    static_cast<std::uint64_t>(config.hidden_size)};
  std::int64_t inner = config.intermediate_size;
  for (const models::LayerConfig& layer : config.layers) inner = std::max(inner, config.intermediate_size_of(layer));
  widths.push_back(static_cast<std::uint64_t>(inner));
  const auto chosen = static_cast<std::uint64_t>(config.moe.experts_per_token);
  std::uint64_t inputs = 0, most = 0, sums = 0;
  for (const std::uint64_t width : widths) {
    inputs += width;
    most = std::max(most, width);
    sums += width * width * sizeof(float);
  }
  const std::uint64_t of_experts =
      chosen * static_cast<std::uint64_t>(config.hidden_size + config.moe.intermediate_size);
  const std::uint64_t columns = is_paired ? 2 * std::max(most, of_experts) : inputs + of_experts;
  const std::uint64_t bytes = has_fast_bfloat16() ? sizeof(at::BFloat16) : sizeof(float);
  return static_cast<std::uint64_t>(tokens) * columns * bytes + (is_paired ? 2 : 1) * sums;
}

}  // namespace

nlohmann::json Calibration::record() const {
  return {{"method", method_.name},           {"text", tokens_.hash},
          {"ids", hash_of_ids(tokens_)},      {"sequences", tokens_.sequences.size()},
          {"tokens", token_count(tokens_)},   {"isa", quant::isa_name()},
          {"threads", at::get_num_threads()}, {"libtorch", torch_version().running}};
}

std::uint64_t Calibration::disk_bytes(const files::Checkpoint& source, const Plan& plan, bool is_shared) const {
  std::uint64_t out = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    if (!planned.scheme || !planned.tied_to.empty()) continue;
    const MatrixStack stack = stack_of(source, planned);
    out += stack.count * PackedLayout(planned, stack.size).size_bytes;
  }
  const std::uint64_t streams = method_.follows_quantized ? 2 : 1;
  if (!source.architecture) return out;
  const models::ModelConfig config = source.model_config();
  out += 2 * streams * static_cast<std::uint64_t>(token_count(tokens_) * config.hidden_size) * sizeof(float);
  return is_shared ? out + exchanged_bytes(config, token_count(tokens_), method_.follows_quantized) : out;
}

void Calibration::run(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options,
                      const CalibrationPlace& place) {
  operators::register_operators();
  tensors_.clear();  // of a part that completes the result after it
  open_.clear();
  matrices_ = searched_ = 0;
  const models::PassWatch watch(options.stop);
  guarded(source.directory.string(), [&] {
    Run run({tokens_, method_, options_, source, plan, options, place});
    files_ = run.files();
    run.run([&](std::int64_t layer, const LayerRecord& record) { take(layer, record, source, plan); });
  });
}

void Calibration::take(std::int64_t layer, const LayerRecord& record, const files::Checkpoint& source,
                       const Plan& plan) {
  for (const StoredMatrix& stored : record.matrices) {
    const PlannedTensor& planned = plan.tensors[stored.tensor];
    const MatrixStack stack = stack_of(source, planned);
    const auto [found, is_new] =
        tensors_.try_emplace(stored.tensor, Tensor{PackedLayout(planned, stack.size), {}, false});
    Tensor& tensor = found->second;
    tensor.matrices.resize(stack.count);
    tensor.is_whole = stack.count == 1 || !planned.is_nested;
    tensor.matrices.at(stored.matrix) = Place{layer, stored.begin};
  }
  matrices_ += std::ssize(record.matrices);
  searched_ += record.searched;
}

bool Calibration::has(std::size_t tensor) const noexcept {
  const auto found = tensors_.find(tensor);
  return found != tensors_.end() && found->second.is_whole &&
         std::ranges::all_of(found->second.matrices, [](const auto& place) { return place.has_value(); });
}

std::shared_ptr<const files::DataFile> Calibration::open(std::int64_t layer) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const files::DataFile>& found = open_[layer];
  if (!found) found = std::make_shared<files::InputFile>(files_->codes(layer));
  const std::shared_ptr<const files::DataFile> out = found;
  if (open_.size() > kMostOpen) open_.erase(open_.begin()->first == layer ? std::prev(open_.end()) : open_.begin());
  return out;
}

void Calibration::read(std::size_t tensor, std::uint64_t first, quant::PackedRows out,
                       std::span<quant::ErrorStats> group_stats) const {
  const Tensor& from = tensors_.at(tensor);
  for (std::uint64_t done = 0; done < group_stats.size();) {
    const std::uint64_t within = (first + done) % from.layout.groups;
    const std::uint64_t count = std::min<std::uint64_t>(group_stats.size() - done, from.layout.groups - within);
    const Place place = from.matrices.at((first + done) / from.layout.groups).value();
    from.layout.read(*open(place.layer), place.begin, within, count, done, out, group_stats);
    done += count;
  }
}

std::vector<Text> Calibration::notes() const {
  std::vector<Text> out = tokens_.notes;
  if (searched_ > 0) {
    out.push_back(std::to_string(searched_) + " of " + std::to_string(matrices_) + " matrices saw too few tokens for " +
                  std::string(method_.name) + ": their scales were searched with the inputs' second moments instead");
  }
  return out;
}

}  // namespace halfbyte::convert::calibrate

namespace halfbyte::convert {

std::shared_ptr<Calibrator> make_calibrator(CalibrationTokens tokens, const CalibrateOptions& options) {
  const calibrate::Method* method = calibrate::find_method(options.method);
  if (!method) throw Error(ErrorCode::kInvalidArgument, "unknown calibration method '" + options.method + "'");
  if (tokens.sequences.empty()) throw Error(ErrorCode::kInvalidArgument, "no tokens to calibrate with");
  return std::make_shared<calibrate::Calibration>(std::move(tokens), *method, options);
}

}  // namespace halfbyte::convert

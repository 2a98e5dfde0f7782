#include "convert/calibrate/calibration_run.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "loader/files/file_tree.h"
#include "models/modules/pass_watch.h"
#include "quant/threads.h"

namespace halfbyte::convert::calibrate {
namespace {

// Sequences whose embeddings are looked up at once.
constexpr std::size_t kSequences = 8;

int threads_of(const QuantizeOptions& options) { return options.threads > 0 ? options.threads : quant::max_threads(); }

const models::DenseLinear& dense(const models::Linear& linear) {
  return static_cast<const models::DenseLinear&>(linear);
}

// Products in bfloat16 where the machine is fast in it and every weight stays what it is.
DtypePolicy policy_of(const Run::Job& job) {
  const auto is_exact = [&](const PlannedTensor& planned) {
    return !planned.scheme || job.source.tensors[planned.source].dtype == Dtype::kBfloat16;
  };
  const bool is_original = job.calibrate.inputs == CalibrationInputs::kOriginal;
  const bool is_bfloat16 = has_fast_bfloat16() && is_original && std::ranges::all_of(job.plan.tensors, is_exact);
  return is_bfloat16 ? DtypePolicy::amp(Dtype::kBfloat16) : DtypePolicy::float32();
}

// The product computes from here on with what its codes stand for.
void put_back(const models::Linear& linear, const PackedMatrix& matrix, int threads) {
  const auto [rows, columns] = matrix.size();
  const at::Tensor values = at::empty({rows, columns}, at::kFloat);
  matrix.values({values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel())}, threads);
  at::Tensor weight = dense(linear).weight();
  weight.copy_(values);
}

}  // namespace

std::int64_t token_count(const CalibrationTokens& tokens) {
  std::int64_t out = 0;
  for (const auto& sequence : tokens.sequences) out += std::ssize(sequence);
  return out;
}

Run::Run(const Job& job)
    : job_(job),
      runner_(job.source, policy_of(job)),
      layers_(runner_.config().num_hidden_layers),
      files_(job.place.directory, {std::ssize(job.tokens.sequences), std::ssize(job.tokens.sequences.front()),
                                   runner_.config().hidden_size}),
      memory_(plan_memory(job.source, job.plan, runner_.config(), files_.shape(), job.calibrate.memory_limit)) {
  for (std::size_t i = 0; i < job.plan.tensors.size(); ++i) {
    const PlannedTensor& planned = job.plan.tensors[i];
    if (planned.scheme && planned.tied_to.empty()) planned_.emplace(job.source.tensors[planned.source].name, i);
  }
}

std::string Run::embed(StatesWriter out) const {
  const models::Embedding embedding = runner_.embedding();
  for (std::span rest(job_.tokens.sequences); !rest.empty();) {
    models::PassWatch::check();
    const std::span some = rest.first(std::min(kSequences, rest.size()));
    out.write(embedding.forward(tensor_of(some)));
    rest = rest.subspan(some.size());
  }
  return out.hash();
}

void Run::run(const Take& take) {
  files_.remove_links();
  const bool goes_on = !job_.place.earlier.empty();
  std::string given = embed(goes_on ? StatesWriter() : StatesWriter(files_.states(0), files_.shape()));
  const std::vector<LayerRecord> done = earlier_layers(given);
  const std::int64_t finished = std::ssize(done);
  for (std::int64_t layer = 0; layer < finished; ++layer) take(layer, done[static_cast<std::size_t>(layer)]);
  report(finished);
  if (finished == layers_) return;
  if (!done.empty()) given = done.back().states;
  if (goes_on && !files_.holds(files_.states(finished), given, job_.options.stop)) {
    embed(StatesWriter(files_.states(0), files_.shape()));
    for (std::int64_t layer = 0; layer < finished; ++layer) advance(layer, done[static_cast<std::size_t>(layer)]);
  }
  for (std::int64_t layer = finished; layer < layers_; ++layer) {
    LayerRecord record = run_layer(layer);
    record.given = given;
    given = record.states;
    job_.place.journal.append_layer(layer, json_of(record));
    take(layer, record);
    report(layer + 1);
  }
}

void Run::report(std::int64_t layers_done) const {
  const std::int64_t tokens = token_count(job_.tokens);
  if (job_.calibrate.progress)
    job_.calibrate.progress(static_cast<std::uint64_t>(tokens * layers_done / layers_),
                            static_cast<std::uint64_t>(tokens));
}

std::vector<LayerRecord> Run::earlier_layers(std::string given) const {
  std::vector<LayerRecord> out;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const auto found = job_.place.earlier.find(layer);
    std::optional<LayerRecord> record = found == job_.place.earlier.end() ? std::nullopt : layer_record(*found->second);
    if (!record || record->given != given || !is_sound(*record, layer)) break;
    given = record->states;
    out.push_back(std::move(*record));
  }
  return out;
}

bool Run::is_sound(const LayerRecord& record, std::int64_t layer) const {
  const files::fs::path codes = files_.codes(layer);
  if (record.source != hash_of_tensors(job_.source, prefix_of(layer), job_.options.stop)) return false;
  if (!files_.holds(codes, record.codes, job_.options.stop)) return false;
  const std::uint64_t size_bytes = files::file_size(codes);
  return std::ranges::all_of(record.matrices, [&](const StoredMatrix& each) { return fits_plan(each, size_bytes); });
}

bool Run::fits_plan(const StoredMatrix& stored, std::uint64_t size_bytes) const {
  if (stored.tensor >= job_.plan.tensors.size() || !job_.plan.tensors[stored.tensor].scheme) return false;
  const PlannedTensor& planned = job_.plan.tensors[stored.tensor];
  const MatrixStack stack = stack_of(job_.source, planned);
  const std::uint64_t needed = PackedLayout(planned, stack.size).size_bytes;
  return stored.matrix < stack.count && needed <= size_bytes && stored.begin <= size_bytes - needed;
}

std::string Run::prefix_of(std::int64_t layer) const {
  return std::string(runner_.config().naming->layers) + "." + std::to_string(layer) + ".";
}

LayerPass Run::pass() const {
  return {runner_, [this](const models::Linear& linear) { return place_of(linear).has_value(); },
          has_fast_bfloat16() ? at::kBFloat16 : at::kFloat};
}

void Run::advance(std::int64_t layer, const LayerRecord& record) {
  runner_.load(layer);
  if (job_.calibrate.inputs != CalibrationInputs::kOriginal) put_back_all(record, layer);
  StatesWriter next(files_.states(layer + 1), files_.shape());
  pass().run(StatesFile(files_.states(layer), files_.shape()), &next);
}

LayerRecord Run::run_layer(std::int64_t layer) {
  runner_.load(layer);
  LayerRecord record;
  record.source = hash_of_tensors(job_.source, prefix_of(layer), job_.options.stop);
  const StatesFile given(files_.states(layer), files_.shape());
  const bool is_last = layer + 1 == layers_;
  StatesWriter next = is_last ? StatesWriter() : StatesWriter(files_.states(layer + 1), files_.shape());
  CodesWriter codes(files_.codes(layer));
  LayerPass pass = this->pass();
  choose_all(pass, layer, given, &next, codes, record);
  record.codes = codes.hash();
  record.states = next.hash();
  return record;
}

void Run::choose_all(LayerPass& pass, std::int64_t layer, const States& given, StatesSink* output, CodesWriter& codes,
                     LayerRecord& record) {
  const CalibrationInputs inputs = job_.calibrate.inputs;
  if (inputs == CalibrationInputs::kSequential) {
    while (std::optional<Moments> stage = pass.next_stage(given)) choose(*stage, true, codes, record);
    return pass.run(given, output);
  }
  const bool goes_on_quantized = inputs == CalibrationInputs::kQuantized;
  StatesSink* original = goes_on_quantized ? nullptr : output;
  while (std::optional<Moments> some = pass.gather_some(given, memory_.moments, original)) {
    original = nullptr;
    choose(*some, false, codes, record);
  }
  if (!goes_on_quantized) return;
  put_back_all(record, layer);
  pass.run(given, output);
}

// "X.weight", or the tensor that an expert's matrix is stacked in: "A.experts.3.B" lies in "A.experts.B".
std::optional<Run::Place> Run::place_of(const models::Linear& linear) const {
  const std::string& path = linear.path();
  if (const auto found = planned_.find(path + ".weight"); found != planned_.end()) return Place{found->second, 0};
  const auto expert = expert_path(path);
  const auto found = expert ? planned_.find(expert->stack) : planned_.end();
  if (found == planned_.end()) return std::nullopt;
  return Place{found->second, expert->expert};
}

void Run::choose(Moments& moments, bool is_put_back, CodesWriter& codes, LayerRecord& record) const {
  for (Part& part : moments.parts()) choose(part, is_put_back, codes, record);
}

void Run::choose(Part& part, bool is_put_back, CodesWriter& codes, LayerRecord& record) const {
  const int threads = threads_of(job_.options);
  std::vector<at::Tensor> weights;
  std::vector<Place> places;
  std::vector<PackedMatrix> matrices;
  std::vector<PackedMatrix*> out;
  for (const models::Linear* linear : part.linears) {
    weights.push_back(dense(*linear).weight().to(at::kFloat).contiguous());
    places.push_back(place_of(*linear).value());
    const PlannedTensor& planned = job_.plan.tensors[places.back().tensor];
    matrices.emplace_back(planned, stack_of(job_.source, planned).size);
  }
  for (PackedMatrix& each : matrices) out.push_back(&each);
  const Method& method = method_for(job_.method, part.tokens, weights.front().size(1));
  record.searched += &method == &job_.method ? 0 : std::ssize(matrices);
  Inputs inputs{part.take_moments(), part.tokens};
  method.run(inputs, weights, out, threads);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    record.matrices.push_back({places[i].tensor, places[i].matrix, codes.add(matrices[i].bytes())});
    if (is_put_back) put_back(*part.linears[i], matrices[i], threads);
  }
}

void Run::put_back_all(const LayerRecord& record, std::int64_t layer) const {
  const files::InputFile codes(files_.codes(layer));
  std::vector<std::byte> bytes;
  for (const models::DenseLinear* linear : runner_.linears()) {
    const auto place = place_of(*linear);
    const auto is_here = [&](const StoredMatrix& each) {
      return place && each.tensor == place->tensor && each.matrix == place->matrix;
    };
    const auto stored = std::ranges::find_if(record.matrices, is_here);
    if (stored == record.matrices.end()) continue;
    const PlannedTensor& planned = job_.plan.tensors[stored->tensor];
    const MatrixSize size = stack_of(job_.source, planned).size;
    bytes.resize(PackedLayout(planned, size).size_bytes);
    codes.read(stored->begin, bytes);
    put_back(*linear, PackedMatrix(planned, size, bytes), threads_of(job_.options));
  }
}

}  // namespace halfbyte::convert::calibrate

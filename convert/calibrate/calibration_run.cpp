#include "convert/calibrate/calibration_run.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "convert/calibrate/expert_path.h"
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

// Products in bfloat16 where the machine is fast in it and every weight of the original stays what it is. Those that
// were quantised are rounded to it, by a fortieth of what they lost before at most.
bool is_bfloat16(const Run::Job& job) {
  const auto is_exact = [&](const PlannedTensor& planned) {
    return !planned.scheme || job.source.tensors[planned.source].dtype == Dtype::kBfloat16;
  };
  return has_fast_bfloat16() && std::ranges::all_of(job.plan.tensors, is_exact);
}

DtypePolicy policy_of(const Run::Job& job) {
  return is_bfloat16(job) ? DtypePolicy::amp(Dtype::kBfloat16) : DtypePolicy::float32();
}

LayersInMemory in_memory(const Run::Job& job, StatesShape states) {
  return {states, is_bfloat16(job) ? sizeof(at::BFloat16) : sizeof(float), job.method.follows_quantized};
}

// What the passes' activations took: the allocator would keep it for more of their size.
void give_back_pages() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

at::ScalarType factors() { return has_fast_bfloat16() ? at::kBFloat16 : at::kFloat; }

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
      memory_(plan_memory(job.source, job.plan, runner_.config(), in_memory(job, files_.shape()),
                          job.calibrate.memory_limit)) {
  if (job.method.follows_quantized) quantized_.emplace(job.source, policy_of(job));
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
  if (goes_on && !holds_states(finished, done)) {
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

// What the layer is given, as the layers before it gave it.
bool Run::holds_states(std::int64_t layer, const std::vector<LayerRecord>& done) const {
  const auto holds = [&](const files::fs::path& path, const std::string& hash) {
    return files_.holds(path, hash, job_.options.stop);
  };
  if (done.empty()) return false;
  if (!holds(files_.states(layer), done.back().states)) return false;
  return !quantized_ || holds(files_.quantized_states(layer), done.back().quantized);
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

std::function<bool(const models::Linear&)> Run::is_wanted() const {
  return [this](const models::Linear& linear) { return place_of(linear).has_value(); };
}

LayerPass Run::pass(const LayerRunner& runner) const { return {runner, is_wanted(), factors()}; }

void Run::advance(std::int64_t layer, const LayerRecord& record) {
  runner_.load(layer);
  StatesWriter next(files_.states(layer + 1), files_.shape());
  pass(runner_).run(StatesFile(files_.states(layer), files_.shape()), &next);
  if (!quantized_) return;
  quantized_->load(layer);
  put_back_all(record, layer);
  advance_quantized(layer);
}

std::string Run::advance_quantized(std::int64_t layer) {
  StatesWriter next(files_.quantized_states(layer + 1), files_.shape());
  pass(*quantized_).run(StatesFile(files_.quantized_states(layer), files_.shape()), &next);
  return next.hash();
}

// Behind the last layer nobody reads them.
StatesWriter Run::next_states(std::int64_t layer) const {
  return layer + 1 == layers_ ? StatesWriter() : StatesWriter(files_.states(layer + 1), files_.shape());
}

LayerRecord Run::run_layer(std::int64_t layer) {
  LayerRecord record;
  record.source = hash_of_tensors(job_.source, prefix_of(layer), job_.options.stop);
  CodesWriter codes(files_.codes(layer));
  quantized_ ? choose_in_turn(layer, codes, record) : choose_by_original(layer, codes, record);
  record.codes = codes.hash();
  return record;
}

void Run::choose_by_original(std::int64_t layer, CodesWriter& codes, LayerRecord& record) {
  runner_.load(layer);
  const StatesFile given(files_.states(layer), files_.shape());
  StatesWriter next = next_states(layer);
  LayerPass pass = this->pass(runner_);
  StatesSink* output = &next;
  while (std::optional<Moments> some = pass.gather_some(given, memory_.moments, output)) {
    output = nullptr;
    choose(*some, codes, record);
  }
  record.states = next.hash();
}

void Run::choose_in_turn(std::int64_t layer, CodesWriter& codes, LayerRecord& record) {
  quantized_->load(layer);
  const StatesFile given(files_.states(layer), files_.shape());
  const StatesFile quantized(files_.quantized_states(layer), files_.shape());
  const bool is_last = layer + 1 == layers_;
  StatesWriter next = next_states(layer);
  PairedPass pass({runner_, given}, {*quantized_, quantized}, is_wanted(), factors(), is_last ? nullptr : &next);
  while (!pass.has_all()) {
    runner_.load(layer);
    std::optional<Moments> stage = pass.next_stage(memory_.moments);
    if (!stage) break;
    runner_.unload();  // choosing takes the memory
    choose(*stage, codes, record);
  }
  if (is_last) return;
  if (pass.lacks_output()) this->pass(runner_).run(given, &next);
  record.states = next.hash();
  record.quantized = advance_quantized(layer);
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

void Run::choose(Moments& moments, CodesWriter& codes, LayerRecord& record) const {
  give_back_pages();
  for (Part& part : moments.parts()) choose(part, codes, record);
}

void Run::choose(Part& part, CodesWriter& codes, LayerRecord& record) const {
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
  Inputs inputs{part.take_moments(), std::move(part.drift), part.tokens};
  method.run(inputs, weights, out, threads);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    record.matrices.push_back({places[i].tensor, places[i].matrix, codes.add(matrices[i].bytes())});
    if (quantized_) put_back(*part.linears[i], matrices[i], threads);
  }
}

void Run::put_back_all(const LayerRecord& record, std::int64_t layer) const {
  const files::InputFile codes(files_.codes(layer));
  std::vector<std::byte> bytes;
  for (const models::DenseLinear* linear : quantized_->linears()) {
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

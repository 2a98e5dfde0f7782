#include "convert/calibrate/calibration_run.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "convert/calibrate/expert_path.h"
#include "loader/files/file_tree.h"
#include "loader/files/hash.h"
#include "models/sessions/pass_watch.h"
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

std::unique_ptr<Meeting> meeting_of(const Run::Job& job) {
  if (!job.place.part) return nullptr;
  return std::make_unique<Meeting>(
      job.place.part->work,
      Meeting::Options{job.place.part->part, std::chrono::seconds(job.options.part_timeout), job.options.stop});
}

// Neighbouring batches, as one run would take them.
std::span<const std::vector<std::int64_t>> own_sequences(std::span<const std::vector<std::int64_t>> all,
                                                         const Meeting* meeting) {
  if (!meeting) return all;
  const std::int64_t batch = std::max<std::int64_t>(1, LayerPass::kTokens / std::ssize(all.front()));
  const std::int64_t batches = (std::ssize(all) + batch - 1) / batch;
  const auto begin = [&](int part) { return std::min(std::ssize(all), batches * part / meeting->count() * batch); };
  const std::int64_t first = begin(meeting->index()), end = begin(meeting->index() + 1);
  return all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
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
      meeting_(meeting_of(job)),
      own_(own_sequences(job.tokens.sequences, meeting_.get())),
      runner_(job.source, policy_of(job)),
      layers_(runner_.config().num_hidden_layers),
      files_(job.place.directory, meeting_ ? meeting_->own_folder() : job.place.directory,
             {std::ssize(own_), std::ssize(job.tokens.sequences.front()), runner_.config().hidden_size}) {
  try {
    memory_ =
        plan_memory(job.source, job.plan, runner_.config(), in_memory(job, files_.shape()), job.calibrate.memory_limit);
  } catch (const Error&) {
    if (job.place.earlier.empty()) throw;
    refused_ = std::current_exception();
  }
  if (job.method.follows_quantized) quantized_.emplace(job.source, policy_of(job));
  for (std::size_t i = 0; i < job.plan.tensors.size(); ++i) {
    const PlannedTensor& planned = job.plan.tensors[i];
    if (planned.scheme && planned.tied_to.empty()) planned_.emplace(job.source.tensors[planned.source].name, i);
  }
}

std::string Run::embed(Sequences sequences, StatesWriter out) const {
  const models::Embedding embedding = runner_.embedding();
  for (std::span rest(sequences); !rest.empty();) {
    models::PassWatch::check();
    const std::span some = rest.first(std::min(kSequences, rest.size()));
    out.write(embedding.forward(tensor_of(some)));
    rest = rest.subspan(some.size());
  }
  return out.close();
}

std::string Run::embed_own() const { return embed(own_, StatesWriter(files_.states(0), files_.shape())); }

void Run::run(const Take& take) {
  std::optional<models::PassWatch> watch;
  if (meeting_) {
    watch.emplace(job_.options.stop, models::PassWatch::Progress(), models::PassWatch::kProducts,
                  [this] { meeting_->beat(); });
  }
  if (is_first()) files_.remove_links();
  const bool goes_on = !job_.place.earlier.empty();
  std::string given = goes_on || meeting_ ? embed(job_.tokens.sequences, StatesWriter()) : embed_own();
  std::vector<LayerRecord> done = earlier_layers(given);
  // Where all are there a part needs no others any more.
  if (meeting_ && std::ssize(done) < layers_) done.resize(static_cast<std::size_t>(agree(done)));
  const std::int64_t finished = std::ssize(done);
  for (std::int64_t layer = 0; layer < finished; ++layer) take(layer, done[static_cast<std::size_t>(layer)]);
  report(finished);
  if (finished == layers_) return;
  if (refused_) std::rethrow_exception(refused_);
  if (!done.empty()) given = done.back().states;
  if ((goes_on || meeting_) && !holds_states(finished, done)) {
    embed_own();
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
  if (meeting_) meeting_->remove_given();
}

// From the layer before, where one ran into it when others had not: each keeps the states of two.
std::int64_t Run::agree(const std::vector<LayerRecord>& done) {
  std::vector<LayerRecord> own = done;
  while (!own.empty() && std::ssize(own) + 1 >= std::ssize(done) && !holds_states(std::ssize(own), own)) own.pop_back();
  const bool holds = !own.empty() && std::ssize(own) + 1 >= std::ssize(done);
  const nlohmann::json said{std::ssize(done), holds ? std::ssize(own) : 0, memory_.moments};
  std::int64_t least = layers_, least_held = layers_;
  for (const std::string& each : meeting_->meet(said.dump())) {
    const nlohmann::json theirs = nlohmann::json::parse(each);
    least = std::min(least, theirs.at(0).get<std::int64_t>());
    least_held = std::min(least_held, theirs.at(1).get<std::int64_t>());
    memory_.moments = std::min(memory_.moments, theirs.at(2).get<std::uint64_t>());
  }
  return least_held > 0 ? std::min(least, least_held) : least;
}

void Run::meet(LayerRecord& record, std::int64_t layer) const {
  const nlohmann::json own{record.source, record.codes, record.states, record.quantized};
  std::string states, quantized;
  const std::vector<std::string> said = meeting_->meet(own.dump());
  for (std::size_t part = 0; part < said.size(); ++part) {
    const nlohmann::json theirs = nlohmann::json::parse(said[part]);
    for (const auto& [i, what] : {std::pair(0, "its tensors"), std::pair(1, "its codes")}) {
      if (theirs.at(i) != own.at(i))
        throw Error(ErrorCode::kContract, "layer " + std::to_string(layer) + ": " + what + " are others in part " +
                                              std::to_string(part + 1) + " than in part " +
                                              std::to_string(meeting_->index() + 1));
    }
    states += theirs.at(2);
    quantized += theirs.at(3);
  }
  record.part_states = std::exchange(record.states, files::hash_hex(states));
  record.part_quantized = std::exchange(record.quantized, files::hash_hex(quantized));
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
  const LayerRecord& last = done.back();
  if (!holds(files_.states(layer), meeting_ ? last.part_states : last.states)) return false;
  return !quantized_ || holds(files_.quantized_states(layer), meeting_ ? last.part_quantized : last.quantized);
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

LayerPass Run::pass(const LayerRunner& runner) { return {runner, is_wanted(), factors(), meeting_.get()}; }

void Run::advance(std::int64_t layer, const LayerRecord& record) {
  runner_.load(layer);
  StatesWriter next(files_.states(layer + 1), files_.shape());
  pass(runner_).run(StatesFile(files_.states(layer), files_.shape()), &next);
  next.close();
  if (!quantized_) return;
  quantized_->load(layer);
  put_back_all(record, layer);
  advance_quantized(layer);
}

std::string Run::advance_quantized(std::int64_t layer) {
  StatesWriter next(files_.quantized_states(layer + 1), files_.shape());
  pass(*quantized_).run(StatesFile(files_.quantized_states(layer), files_.shape()), &next);
  return next.close();
}

// Behind the last layer nobody reads them.
StatesWriter Run::next_states(std::int64_t layer) const {
  return layer + 1 == layers_ ? StatesWriter() : StatesWriter(files_.states(layer + 1), files_.shape());
}

LayerRecord Run::run_layer(std::int64_t layer) {
  LayerRecord record;
  record.source = hash_of_tensors(job_.source, prefix_of(layer), job_.options.stop);
  {
    CodesWriter codes = is_first() ? CodesWriter(files_.codes(layer)) : CodesWriter();
    quantized_ ? choose_in_turn(layer, codes, record) : choose_by_original(layer, codes, record);
    record.codes = codes.close();
  }
  if (meeting_) meet(record, layer);
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
  record.states = next.close();
}

void Run::choose_in_turn(std::int64_t layer, CodesWriter& codes, LayerRecord& record) {
  quantized_->load(layer);
  const StatesFile given(files_.states(layer), files_.shape());
  const StatesFile quantized(files_.quantized_states(layer), files_.shape());
  const bool is_last = layer + 1 == layers_;
  StatesWriter next = next_states(layer);
  PairedPass pass({runner_, given}, {*quantized_, quantized}, is_wanted(), factors(), is_last ? nullptr : &next,
                  meeting_.get());
  while (!pass.has_all()) {
    runner_.load(layer);
    std::optional<Moments> stage = pass.next_stage(memory_.moments);
    if (!stage) break;
    runner_.unload();  // choosing takes the memory
    choose(*stage, codes, record);
  }
  if (is_last) return;
  if (pass.lacks_output()) this->pass(runner_).run(given, &next);
  record.states = next.close();
  record.quantized = advance_quantized(layer);
}

// "X.weight", or the tensor that an expert's matrix is stacked in: "A.experts.3.B" lies in "A.experts.B".
std::optional<Place> Run::place_of(const models::Linear& linear) const {
  const std::string& path = linear.path();
  if (const auto found = planned_.find(path + ".weight"); found != planned_.end()) return Place{found->second, 0};
  const auto expert = expert_path(path);
  const auto found = expert ? planned_.find(expert->stack) : planned_.end();
  if (found == planned_.end()) return std::nullopt;
  return Place{found->second, expert->expert};
}

void Run::choose(Moments& moments, CodesWriter& codes, LayerRecord& record) {
  give_back_pages();
  const int threads = threads_of(job_.options);
  Choosing choosing({job_.method, job_.source, job_.plan, threads, meeting_.get(),
                     [this](const models::Linear& linear) { return place_of(linear).value(); }});
  record.searched += choosing.run(moments, [&](const models::Linear& linear, Place place, const PackedMatrix& matrix) {
    record.matrices.push_back({place.tensor, place.matrix, codes.add(matrix.bytes())});
    if (quantized_) put_back(linear, matrix, threads);
  });
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

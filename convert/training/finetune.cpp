#include <halfbyte/finetune.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/Parallel.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>
#include <halfbyte/linear.h>
#include <halfbyte/load_low_bit.h>

#include "convert/synth.h"
#include "convert/training/host_masters.h"
#include "convert/training/learned.h"
#include "convert/training/trainer.h"
#include "loader/files/checkpoint.h"
#include "loader/files/file_tree.h"
#include "loader/files/printable.h"
#include "loader/model_fingerprint.h"
#include "loader/thread_count.h"
#include "loader/torch_runtime.h"
#include "models/architectures/model_config.h"
#include "models/training/documents.h"
#include "models/training/ranks.h"

namespace halfbyte::convert {
namespace {

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "finetune: " + problem);
}

void check(const FinetuneOptions& options) {
  if (options.batch < 1 || options.accumulate < 1 || options.context < 2 || options.steps < 0)
    refuse("steps, batch and accumulate are 1 at least, the context 2");
  if (options.steps == 0 && !(options.epochs > 0)) refuse("neither steps nor epochs say how long to train");
  if (!(options.learning_rate > 0) || !std::isfinite(options.learning_rate))
    refuse("the learning rate must be positive");
  if (options.warmup < 0 || !(options.weight_decay >= 0) || !(options.clip >= 0))
    refuse("warmup, weight decay and clip are 0 at least");
  if (options.evaluate_every < 0 || options.save_every < 0 || options.keep < 1)
    refuse("evaluate_every and save_every are 0 at least, keep 1");
  if (options.resume && options.restart)
    throw Error(ErrorCode::kInvalidArgument, Option::kResume + " and " + Option::kRestart + " exclude each other");
  const bool is_full = options.method == TrainingMethod::kFull;
  const auto of_full = [&](bool is_wanted, const char* what) {
    if (is_wanted && !is_full) refuse(std::string(what) + " is for training all weights, not adapters");
  };
  of_full(options.begins_anew, "beginning with drawn weights");
  of_full(options.has_bfloat16_masters, "the masters' dtype");
  of_full(!options.fake_quantize.empty(), "fake quantisation");
  if (is_full && !options.adapter.empty()) refuse("an adapter to begin with is for training adapters");
  if (options.device.kind() == Device::Kind::kMeta) refuse("a device without values: nothing can be learnt on meta");
  if (options.dtype.stream() != Dtype::kFloat32)
    refuse("under the dtype policy " + options.dtype.name() +
           " what lies between products is not float32, and training loses small numbers there; amp:bfloat16 or "
           "float32 keep them");
}

Trainer::Texts read_texts(const fs::path& checkpoint, const fs::path& text, const models::ModelConfig& config,
                          const FinetuneOptions& options) {
  CorpusOptions corpus{.tokenizer = checkpoint,
                       .vocab_size = config.vocab_size,
                       .context = std::min(options.context, config.max_position_embeddings),
                       .packs = options.packs && training::can_pack(config),
                       .is_json_lines = options.is_json_lines,
                       .stop = options.stop};
  Trainer::Texts out{read_corpus(text, corpus), {}};
  if (!options.evaluation.empty()) out.evaluated = read_corpus(options.evaluation, corpus);
  return out;
}

// All that decides what is learnt, but for the machine.
nlohmann::json identity_of(const Model& model, const Learned& learned, const Corpus& corpus,
                           const FinetuneOptions& options) {
  nlohmann::json out = learned.identity();
  for (const FingerprintPart& part : fingerprint_of(model)) out[std::string("model's ") + part.key] = part.value;
  out["text"] = corpus.hash;
  out["number of sequences"] = corpus.sequences.size();
  out["number of tokens"] = corpus.scored;
  out["method"] = static_cast<int>(options.method);
  out["batch"] = options.batch;
  out["accumulate"] = options.accumulate;
  out["ctx"] = options.context;
  out["packing"] = options.packs;
  out["lr"] = options.learning_rate;
  out["schedule"] = static_cast<int>(options.schedule);
  out["warmup"] = options.warmup;
  out["optimizer"] = static_cast<int>(options.optimizer);
  out["weight decay"] = options.weight_decay;
  out["clip"] = options.clip;
  out["seed"] = options.seed;
  out["recomputing"] = options.recomputes;
  out["number of threads"] = at::get_num_threads();
  out["instruction set"] = quant::isa_name();
  out["device"] = model.report().device;
  return out;
}

// What an earlier run left, if it is to be gone on from.
std::optional<TrainingState> earlier(Destination& destination, const TrainingStates& states,
                                     const FinetuneOptions& options, std::vector<Text>& notes) {
  if (!destination.had_leftovers()) return std::nullopt;
  if (!states.is_there() || options.restart) {
    destination.start_over();
    return std::nullopt;
  }
  if (!options.resume)
    throw Error(ErrorCode::kAlreadyExists, Text(files::printable_path(destination.work_path()) +
                                                ": there are steps of a training that was stopped; ") +
                                               Option::kResume + " goes on, " + Option::kRestart + " deletes them");
  std::optional<TrainingState> out = states.newest(notes);
  out ? destination.remove_all_but({}) : destination.start_over();
  return out;
}

// Of drawn weights, in what is left behind by a run that is stopped.
fs::path drawn(const fs::path& config, const fs::path& folder, const FinetuneOptions& options) {
  const fs::path out = folder / "drawn";
  training::by_first(options.group.get(), [&] {
    files::make_directory(folder);
    if (!files::is_directory(out)) synth(out, {.config = config, .seed = options.seed, .stop = options.stop});
  });
  return out;
}

// `destination`: null in ranks that do not write.
FinetuneSummary train(const fs::path& given, const fs::path& text, const fs::path& path, Destination* destination,
                      const TrainingStates& states, const FinetuneOptions& options) {
  std::vector<Text> notes;
  std::optional<TrainingState> before;
  training::by_first(options.group.get(), [&] { before = earlier(*destination, states, options, notes); });
  const fs::path checkpoint = options.begins_anew ? drawn(given, training_path(path), options) : given;
  const Model model =
      load_low_bit(checkpoint, {.dtype = options.dtype, .device = options.device, .compute = ComputeMode::kFloat});
  const Trainer::Texts texts = read_texts(checkpoint, text, model.config(), options);
  const auto make = options.method == TrainingMethod::kFull ? learned_weights : learned_adapters;
  std::unique_ptr<Learned> learned = make(model, checkpoint, options);
  if (!model.module().device().is_cpu()) learned = with_host_masters(std::move(learned));
  Trainer trainer(model.module(), *learned, texts, options, states,
                  identity_of(model, *learned, texts.learnt, options));
  trainer.begin(std::move(before));
  FinetuneSummary out = trainer.run();
  out.device = model.report().device;
  out.ranks = options.group ? options.group->size() : 1;
  out.threads = at::get_num_threads();
  out.notes = std::move(notes);
  for (const Corpus* corpus : {&texts.learnt, &texts.evaluated})
    out.notes.insert(out.notes.end(), corpus->notes.begin(), corpus->notes.end());
  if (out.was_stopped || !destination) return out;
  learned->write(*destination);
  destination->commit();
  return out;
}

}  // namespace

FinetuneSummary finetune(const fs::path& checkpoint, const fs::path& text, const fs::path& path,
                         const FinetuneOptions& options) {
  check(options);
  check_apart(checkpoint, destination_path(path));
  const Device device = usable_device(options.device).device;  // before what an earlier run left is deleted
  if (options.group && !device.is_cpu())
    throw Error(ErrorCode::kUnsupported, "finetune: ranks train on the CPU alone, not on " + device.name());
  if (options.threads > 0) set_thread_count(options.threads);
  const TrainingStates states(training_path(destination_path(path)), options.keep);
  if (!training::is_first(options.group.get()))
    return train(checkpoint, text, destination_path(path), nullptr, states, options);
  Destination destination(path, {.overwrite = options.overwrite, .keep_leftovers = true});
  try {
    FinetuneSummary out = train(checkpoint, text, destination.final_path(), &destination, states, options);
    if (out.was_stopped && states.is_there()) destination.keep();
    return out;
  } catch (...) {
    if (states.is_there()) destination.keep();
    throw;
  }
}

}  // namespace halfbyte::convert

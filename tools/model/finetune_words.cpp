#include "tools/model/finetune_words.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/hub_cache.h"
#include "tools/cli/parse.h"
#include "tools/cli/policy.h"
#include "tools/cli/scheme_names.h"
#include "tools/cli/spelling.h"
#include "tools/model/model_options.h"

namespace halfbyte::cli {
namespace {

using convert::FinetuneOptions;
using convert::FinetuneSummary;
using convert::Schedule;
using convert::TrainingMethod;
using convert::TrainingOptimizer;

constexpr std::int64_t kMost = 1'000'000'000;

template <class Value>
struct Named {
  const char* name;
  Value value;
};
constexpr Named<Schedule> kSchedules[] = {
    {"cosine", Schedule::kCosine}, {"linear", Schedule::kLinear}, {"constant", Schedule::kConstant}};
struct Method {
  TrainingMethod method;
  bool is_weight_decomposed = false;
};
constexpr Named<Method> kMethods[] = {{"lora", {TrainingMethod::kAdapters}},
                                      {"dora", {TrainingMethod::kAdapters, true}},
                                      {"full", {TrainingMethod::kFull}}};
constexpr Named<TrainingOptimizer> kOptimizers[] = {{"adamw", TrainingOptimizer::kAdamW},
                                                    {"adamw8bit", TrainingOptimizer::kAdamW8bit},
                                                    {"sgd", TrainingOptimizer::kSgd},
                                                    {"adafactor", TrainingOptimizer::kAdafactor}};

constexpr Named<bool> kMasters[] = {{"float32", false}, {"bfloat16", true}};

template <class Value, std::size_t kCount>
std::vector<std::string> names_of(const Named<Value> (&table)[kCount]) {
  std::vector<std::string> out;
  for (const auto& row : table) out.emplace_back(row.name);
  return out;
}

// Precondition: it is in the table.
template <class Value, std::size_t kCount>
Value value_of(const Named<Value> (&table)[kCount], const std::string& name) {
  return std::ranges::find(table, name, [](const auto& row) { return std::string(row.name); })->value;
}

void declare_texts(OptionParser& parser, FinetuneWords& words) {
  parser.add_option("--text", words.text, "what to learn: a text; token ids, chats or texts as .jsonl")
      .type_name("FILE");
  parser.add_option("--jsonl", words.json_lines, "the same of a file that is JSON lines whatever it is called")
      .type_name("FILE");
  parser.add_option("--eval", words.evaluation, "text that is not learnt, whose loss is told of").type_name("FILE");
  parser.add_option("--eval-every", words.options.evaluate_every, "steps; 0: at the end alone")
      .check(whole_number(0, kMost))
      .show_default();
  parser.add_option("--ctx", words.options.context, "tokens of a sequence")
      .check(whole_number(2, kMost))
      .show_default();
  parser.add_flag("--no-packing", words.has_no_packing, "every document is a sequence of its own");
}

void declare_lora(OptionParser& parser, FinetuneWords& words) {
  LoraOptions& lora = words.options.lora;
  parser
      .add_option("--method", words.method,
                  "what is trained: adapters (lora if not said), with a magnitude for each row (dora), or all weights")
      .check(one_of(names_of(kMethods)));
  parser.add_option("--adapter", words.adapter, "adapters to begin with, whose rank and alpha then hold")
      .type_name("DIR");
  parser.add_option("--rank", lora.rank, "of the adapters").check(whole_number(1, 4096)).show_default();
  parser.add_option("--alpha", lora.alpha, "what they are scaled by, times 1 / rank")
      .check(number_between(0, 1e6))
      .show_default();
  parser.add_flag("--rslora", lora.is_rank_stabilised, "scale by alpha / sqrt(rank) instead");
  parser.add_option("--dropout", lora.dropout, "of what the adapters are given while they train")
      .check(number_between(0, 0.99))
      .show_default();
  parser
      .add_option("--targets", lora.targets,
                  "Linears that get one ('*' matches anything); all but the head if not said; repeatable")
      .type_name("PATTERN")
      .repeatable();
}

void declare_weights(OptionParser& parser, FinetuneWords& words) {
  FinetuneOptions& options = words.options;
  parser
      .add_option(
          "--init", words.config,
          "instead of CKPT: a config.json beside a tokenizer, or their directory; weights are drawn by the seed, "
          "and all are trained")
      .type_name("CONFIG");
  parser.add_option("--masters", words.masters, "of --method full: dtype of the weights that are updated")
      .check(one_of(names_of(kMasters)))
      .show_default();
  parser
      .add_option("--fake-quantize", options.fake_quantize,
                  "of --method full: passes see weights as this scheme makes them, so that they survive it")
      .check(one_of(scheme_names()));
  parser.add_option("--fake-group-size", options.fake_group_size, "of that scheme, if not its default")
      .check(whole_number(1, 65536));
}

void declare_steps(OptionParser& parser, FinetuneWords& words) {
  FinetuneOptions& options = words.options;
  parser.add_option("--steps", words.steps, "updates; 100 if neither they nor epochs are said")
      .check(whole_number(1, kMost));
  parser.add_option("--epochs", options.epochs, "times that each sequence is learnt from, instead of steps")
      .check(number_between(0, 1e6));
  parser.add_option("--batch", options.batch, "sequences that are run together")
      .check(whole_number(1, 65536))
      .show_default();
  parser.add_option("--accumulate", options.accumulate, "such batches to one update")
      .check(whole_number(1, 65536))
      .show_default();
  parser.add_option("--lr", options.learning_rate, "learning rate").check(number_between(1e-12, 10)).show_default();
  parser.add_option("--schedule", words.schedule, "of the learning rate, after the warmup")
      .check(one_of(names_of(kSchedules)))
      .show_default();
  parser.add_option("--warmup", options.warmup, "steps in which the learning rate grows")
      .check(whole_number(0, kMost))
      .show_default();
  parser.add_option("--optimizer", words.optimizer, "what turns gradients into updates")
      .check(one_of(names_of(kOptimizers)))
      .show_default();
  parser.add_option("--weight-decay", options.weight_decay, "of the optimizer")
      .check(number_between(0, 10))
      .show_default();
  parser.add_option("--clip", options.clip, "largest norm of the gradients; 0: any")
      .check(number_between(0, 1e6))
      .show_default();
  parser.add_option("--seed", options.seed, "of new adapters, of the order of sequences, of dropout").show_default();
}

void declare_run(OptionParser& parser, FinetuneWords& words) {
  FinetuneOptions& options = words.options;
  parser.add_option("--dtype", words.dtype, "dtype policy of the model's products")
      .check(dtype_policy())
      .show_default();
  declare_device(parser, words.device, "where passes run; auto: the best that is there");
  parser.add_flag("--no-recompute", words.has_no_recompute,
                  "keep all that layers computed for their gradients: faster, in more memory");
  parser
      .add_option("--save-every", options.save_every,
                  "steps after which what --resume goes on from is written; 0: none")
      .check(whole_number(0, kMost))
      .show_default();
  parser.add_option("--keep", options.keep, "of those as many as stay meanwhile")
      .check(whole_number(1, 1000))
      .show_default();
  parser.add_flag("--resume", options.resume, "go on from the last of them, to the same bits");
  parser.add_flag("--restart", options.restart, "delete them and begin anew");
  parser.add_option("--threads", options.threads, "0: one a core").check(whole_number(0, 4096)).show_default();
  parser.add_option("--log", words.log, "write what each step came to there as a line of JSON").type_name("FILE");
  parser.add_option("--report", words.report, "write a page with the losses there, and their figures").type_name("DIR");
  parser.add_flag("--overwrite", options.overwrite, "replace OUT when it exists");
}

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "finetune: " + problem);
}

// With --init the one word is OUT, and what is trained is all.
void take_model(FinetuneWords& words) {
  FinetuneOptions& options = words.options;
  options.begins_anew = !words.config.empty();
  if (options.begins_anew) {
    if (!words.destination.empty()) refuse("--init is instead of CKPT; give OUT alone");
    words.destination = std::exchange(words.checkpoint, words.config);
  } else {
    if (words.destination.empty()) refuse("OUT is missing: the directory to write");
    words.checkpoint = local_checkpoint(words.checkpoint, CheckpointUse::kModel);
  }
  const Method method = value_of(kMethods, words.method.value_or(options.begins_anew ? "full" : "lora"));
  options.method = method.method;
  options.lora.is_weight_decomposed = method.is_weight_decomposed;
  options.has_bfloat16_masters = value_of(kMasters, words.masters);
}

}  // namespace

void declare_finetune(OptionParser& parser, FinetuneWords& words) {
  parser.add_option("CKPT", words.checkpoint, "model to train, or whose weights stay as they are").required();
  parser.add_option("OUT", words.destination, "directory to write; it appears when it is complete");
  declare_texts(parser, words);
  declare_lora(parser, words);
  declare_weights(parser, words);
  declare_steps(parser, words);
  declare_run(parser, words);
}

void take(FinetuneWords& words) {
  FinetuneOptions& options = words.options;
  take_model(words);
  if (words.text.empty() == words.json_lines.empty()) refuse("give what to learn, by --text or --jsonl");
  if (words.steps && options.epochs > 0) refuse("--steps and --epochs exclude each other");
  options.is_json_lines = words.text.empty();
  if (words.text.empty()) words.text = words.json_lines;
  if (words.steps) options.steps = *words.steps;
  if (options.epochs > 0) options.steps = 0;
  options.evaluation = words.evaluation;
  options.adapter = words.adapter;
  options.packs = !words.has_no_packing;
  options.recomputes = !words.has_no_recompute;
  options.schedule = value_of(kSchedules, words.schedule);
  options.optimizer = value_of(kOptimizers, words.optimizer);
  options.dtype = DtypePolicy::parse(words.dtype);
  options.device = Device::parse(words.device);
}

double tokens_per_second(const FinetuneSummary& done) {
  return done.seconds > 0 ? static_cast<double>(done.tokens) / done.seconds : 0;
}

nlohmann::ordered_json json_of(const FinetuneWords& words, const FinetuneSummary& done) {
  nlohmann::ordered_json evaluations = nlohmann::ordered_json::array();
  for (const auto& [step, loss] : done.evaluations) evaluations.push_back({{"step", step}, {"loss", loss}});
  return {{"checkpoint", words.checkpoint},
          {"destination", words.destination},
          {"steps", done.steps},
          {"resumed_steps", done.resumed},
          {"parameters", done.parameters},
          {"documents", done.documents},
          {"sequences", done.sequences},
          {"tokens", done.tokens},
          {"tokens_per_s", tokens_per_second(done)},
          {"seconds", done.seconds},
          {"device", done.device},
          {"ranks", done.ranks},
          {"threads", done.threads},
          {"losses", done.losses},
          {"evaluations", evaluations},
          {"stopped", done.was_stopped},
          {"notes", said(done.notes)}};
}

}  // namespace halfbyte::cli

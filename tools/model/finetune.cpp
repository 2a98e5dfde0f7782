// halfbyte finetune CKPT OUT --text FILE
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/finetune.h>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/policy.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {
namespace {

using convert::FinetuneOptions;
using convert::FinetuneSummary;
using convert::Schedule;

constexpr std::int64_t kMost = 1'000'000'000;

struct ScheduleName {
  const char* name;
  Schedule schedule;
};
constexpr ScheduleName kSchedules[] = {
    {"cosine", Schedule::kCosine}, {"linear", Schedule::kLinear}, {"constant", Schedule::kConstant}};

struct Words {
  std::string checkpoint, destination, text;
  std::string schedule = kSchedules[0].name;
  std::string dtype = "amp:bfloat16";
  std::string log;
  FinetuneOptions options;
};

void declare_adapters(OptionParser& parser, LoraOptions& lora) {
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

void declare_training(OptionParser& parser, Words& words) {
  FinetuneOptions& options = words.options;
  std::vector<std::string> schedules;
  for (const ScheduleName& row : kSchedules) schedules.emplace_back(row.name);
  parser.add_option("--steps", options.steps, "updates of the adapters").check(whole_number(1, kMost)).show_default();
  parser.add_option("--batch", options.batch, "sequences a step").check(whole_number(1, 65536)).show_default();
  parser.add_option("--ctx", options.context, "tokens of a sequence").check(whole_number(2, kMost)).show_default();
  parser.add_option("--lr", options.learning_rate, "learning rate").check(number_between(1e-12, 10)).show_default();
  parser.add_option("--schedule", words.schedule, "of the learning rate, after the warmup")
      .check(one_of(schedules))
      .show_default();
  parser.add_option("--warmup", options.warmup, "steps in which the learning rate grows")
      .check(whole_number(0, kMost))
      .show_default();
  parser.add_option("--weight-decay", options.weight_decay, "of AdamW").check(number_between(0, 10)).show_default();
  parser.add_option("--clip", options.clip, "largest norm of the gradients; 0: any")
      .check(number_between(0, 1e6))
      .show_default();
  parser.add_option("--seed", options.seed, "of the adapters and of the order of sequences").show_default();
}

void declare(OptionParser& parser, Words& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model whose weights stay as they are").required();
  parser.add_option("OUT", words.destination, "directory of the adapters to write; it appears when it is complete")
      .required();
  parser.add_option("--text", words.text, "what to learn: a text; token ids, chats or texts as .jsonl")
      .type_name("FILE")
      .required();
  declare_adapters(parser, words.options.lora);
  declare_training(parser, words);
  parser.add_option("--dtype", words.dtype, "dtype policy of the model's products")
      .check(dtype_policy())
      .show_default();
  parser.add_option("--threads", words.options.threads, "0: one a core").check(whole_number(0, 4096)).show_default();
  parser.add_option("--log", words.log, "write each step's loss there as a line of JSON").type_name("FILE");
  parser.add_flag("--overwrite", words.options.overwrite, "replace OUT when it exists");
}

// One line a step; nothing where no file is wanted.
class Log {
 public:
  explicit Log(const std::string& file) : file_(file) {
    if (file.empty()) return;
    stream_.open(file, std::ios::trunc);
    check();
  }
  void add(std::int64_t step, double loss) {
    if (file_.empty()) return;
    stream_ << nlohmann::ordered_json{{"step", step}, {"loss", loss}}.dump() << std::endl;
    check();
  }

 private:
  void check() const {
    if (!stream_) throw Error(ErrorCode::kIo, file_ + ": cannot be written");
  }

  std::string file_;
  std::ofstream stream_;
};

double rate_of(const FinetuneSummary& done) {
  return done.seconds > 0 ? static_cast<double>(done.tokens) / done.seconds : 0;
}

nlohmann::ordered_json json_of(const Words& words, const FinetuneSummary& done) {
  return {{"checkpoint", words.checkpoint}, {"destination", words.destination}, {"steps", done.steps},
          {"parameters", done.parameters},  {"sequences", done.sequences},      {"tokens", done.tokens},
          {"tokens_per_s", rate_of(done)},  {"seconds", done.seconds},          {"losses", done.losses},
          {"stopped", done.was_stopped},    {"notes", said(done.notes)}};
}

std::string line_of(const FinetuneSummary& done) {
  return counted(done.steps, "step") + ", loss " + fixed(done.losses.front(), 4) + " -> " +
         fixed(done.losses.back(), 4) + " in " + human_seconds(done.seconds) + " (" +
         counted(done.parameters, "parameter") + ", " + fixed(rate_of(done), 0) + " tokens/s)";
}

ExitStatus run(Words& words, const CommonOptions& common) {
  const InterruptWatch interrupt;  // before OpenMP's threads
  FinetuneOptions& options = words.options;
  options.dtype = DtypePolicy::parse(words.dtype);
  options.lora.seed = options.seed;
  for (const ScheduleName& row : kSchedules) {
    if (words.schedule == row.name) options.schedule = row.schedule;
  }
  options.stop = interrupt.token();
  Log log(words.log);
  std::optional<Progress> progress(std::in_place, "finetune", !common.is_quiet, ProgressUnit::kTokens);
  const auto tokens_a_step = static_cast<std::uint64_t>(options.batch * options.context);
  options.on_step = [&](std::int64_t step, double loss) {
    log.add(step, loss);
    progress->update(static_cast<std::uint64_t>(step) * tokens_a_step,
                     static_cast<std::uint64_t>(options.steps) * tokens_a_step);
  };
  const FinetuneSummary done = convert::finetune(words.checkpoint, words.text, words.destination, options);
  progress.reset();
  for (const Text& note : done.notes) log_warning(said(note));
  if (done.steps == 0) return say_stopped("no step was done, and nothing was written");
  common.is_json ? print_json(json_of(words, done)) : print_line(line_of(done));
  return done.was_stopped ? say_stopped("the adapters are those of the steps done") : ExitStatus::kDone;
}

}  // namespace

Action prepare_finetune(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

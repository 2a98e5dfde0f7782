// halfbyte finetune CKPT OUT --text FILE
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/finetune.h>

#include "loader/files/platform.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/model/finetune_words.h"
#include "tools/model/launched_group.h"
#include "tools/model/model_verbs.h"
#include "tools/report/report.h"
#include "tools/report/training.h"
#include "tools/verbs/quantize_report.h"

namespace halfbyte::cli {
namespace {

using convert::FinetuneOptions;
using convert::FinetuneStep;
using convert::FinetuneSummary;

// One line a step; nothing where no file is wanted. What was there goes when the first step is done; a run that goes on
// keeps the lines of the steps before, and steps that were lost are done again.
class Log {
 public:
  Log(const std::string& file, bool goes_on) : file_(file), goes_on_(goes_on) {
    if (file.empty()) return;
    stream_.open(file, std::ios::app);
    check();
  }

  void add(const FinetuneStep& step) {
    if (file_.empty()) return;
    if (!has_begun_ && std::filesystem::is_regular_file(file_)) begin(step.step);
    has_begun_ = true;
    nlohmann::ordered_json line{{"step", step.step},
                                {"loss", step.loss},
                                {"lr", step.rate},
                                {"gradient_norm", step.gradient_norm},
                                {"tokens", step.tokens},
                                {"seconds", step.seconds},
                                {"sequences", step.sequences}};
    if (step.evaluation) line["eval_loss"] = *step.evaluation;
    stream_ << line.dump() << std::endl;
    check();
  }

 private:
  void begin(std::int64_t first) {
    const std::string kept = goes_on_ ? lines_before(first) : "";
    std::error_code failed;
    std::filesystem::resize_file(file_, 0, failed);
    stream_ << kept;
    if (failed) stream_.setstate(std::ios::failbit);
    check();
  }

  std::string lines_before(std::int64_t first) const {
    std::string out;
    std::ifstream file(file_);
    for (std::string line; std::getline(file, line);) {
      const auto read = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      const auto step = read.is_object() ? read.find("step") : read.end();
      if (step != read.end() && step->is_number_integer() && *step < first) out += line + "\n";
    }
    return out;
  }

  void check() const {
    if (!stream_) throw Error(ErrorCode::kIo, file_ + ": cannot be written");
  }

  std::string file_;
  bool goes_on_, has_begun_ = false;
  std::ofstream stream_;
};

std::string line_of(const FinetuneSummary& done) {
  const std::string evaluated =
      done.evaluations.empty() ? ""
                               : ", " + fixed(done.evaluations.back().second, 4) + " on the text that is not learnt";
  return counted(done.steps, "step") + ", loss " + fixed(done.losses.front(), 4) + " -> " +
         fixed(done.losses.back(), 4) + evaluated + " in " + human_seconds(done.seconds) + " (" +
         counted(done.parameters, "parameter") + ", " + fixed(tokens_per_second(done), 0) + " tokens/s)";
}

void report(const FinetuneWords& words, const FinetuneSummary& done) {
  const nlohmann::ordered_json json = json_of(words, done);
  const nlohmann::ordered_json provenance{
      {"text", words.text}, {"trained by", "halfbyte " + std::string(version())}, {"on", machine().cpu}};
  write_page(words.report, training_page(json, provenance), json);
}

// Of a rank whose results are the first one's too, which tells of them.
ExitStatus run_silently(const FinetuneWords& words) {
  const FinetuneSummary done = convert::finetune(words.checkpoint, words.text, words.destination, words.options);
  return done.was_stopped ? say_stopped("after step " + std::to_string(done.steps) + ", as all ranks")
                          : ExitStatus::kDone;
}

ExitStatus run(FinetuneWords& words, const CommonOptions& common) {
  keep_freed_memory();
  InterruptWatch interrupt;  // before OpenMP's threads
  FinetuneOptions& options = words.options;
  take(words);
  options.stop = interrupt.token();
  interrupt.end_at_once();  // while others are waited for
  options.group = launched_group();
  interrupt.request_only();
  if (!is_first_rank()) return run_silently(words);
  Log log(words.log, options.resume);
  std::optional<Progress> progress(std::in_place, "finetune", !common.is_quiet, ProgressUnit::kTokens);
  const auto tokens_a_step = static_cast<std::uint64_t>(options.batch * options.accumulate * options.context);
  options.on_step = [&](const FinetuneStep& step) {
    log.add(step);
    progress->relabel("loss " + fixed(step.loss, 3) + ", " + human_bytes(files::current_rss_bytes()));
    progress->update(static_cast<std::uint64_t>(step.step) * tokens_a_step,
                     static_cast<std::uint64_t>(step.steps) * tokens_a_step);
  };
  if (!words.report.empty()) check_report_folder(words.report);
  const FinetuneSummary done = convert::finetune(words.checkpoint, words.text, words.destination, options);
  progress.reset();
  for (const Text& note : done.notes) log_warning(said(note));
  if (done.steps == 0) return say_stopped("no step was done, and nothing was written");
  if (!words.report.empty()) report(words, done);
  if (common.is_json) print_json(json_of(words, done));
  if (done.was_stopped)
    return say_stopped("after step " + std::to_string(done.steps) + "; the same command with --resume goes on");
  if (!common.is_json) print_line(line_of(done));
  if (!common.is_json && !words.report.empty()) print_line("report: " + printable(words.report) + "/report.html");
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_finetune(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<FinetuneWords>();
  declare_finetune(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

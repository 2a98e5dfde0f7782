// halfbyte evaluate CKPT --against SRC --text FILE
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/evaluate_checkpoint.h>

#include "loader/thread_count.h"
#include "tools/cli/errors.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/read_input.h"
#include "tools/cli/sudden_ends.h"
#include "tools/model/evaluate_output.h"
#include "tools/model/evaluate_report.h"
#include "tools/model/launched_group.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {
namespace {

constexpr const char* kLlamaCppWindows = "llama.cpp";
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// As exact_loading(), unless other options say more.
ModelWords exact_words() {
  ModelWords words;
  words.dtype = "float32";
  words.compute = "float";
  return words;
}

struct Words {
  ModelWords model = exact_words();
  std::string text;
  std::string against;
  std::string kind = "prefixed";
  std::int64_t context = 0;  // 0: 256, or what the models have room for
  std::int64_t windows = 0;
  std::string logits;
  std::string memory_limit;  // empty: the machine's
  bool wants_layers = false;
  std::string tasks;
  std::string report;
  std::vector<std::string> compare;
  bool parses_special = false;
};

void declare(OptionParser& parser, Words& words) {
  declare_model(parser, words.model);
  parser.add_checkpoint("--against", words.against, "the original, in float32: adds all that compares")
      .type_name("SRC");
  parser.add_option("--text", words.text, "text to predict, UTF-8; -: standard input").type_name("FILE").required();
  parser
      .add_option("--ctx-size", words.context,
                  "tokens a window; the second half of each is scored; 256 or what the models have room for")
      .check(whole_number(4, 1'000'000'000));
  parser.add_option("--windows", words.windows, "most windows; 0: all of the text")
      .check(whole_number(0, 1'000'000'000))
      .show_default();
  parser.add_option("--window-kind", words.kind, "'llama.cpp': the windows and scored tokens of llama-perplexity")
      .check(one_of({"prefixed", kLlamaCppWindows}))
      .show_default();
  parser
      .add_option("--logits", words.logits,
                  "the original's log-probabilities, 16 bits each: read where it exists, else written for next time")
      .type_name("FILE");
  parser
      .add_option("--memory-limit", words.memory_limit,
                  "models that need more together run one after the other; this machine's memory unless told")
      .type_name("SIZE")
      .check(byte_size());
  parser
      .add_option("--tasks", words.tasks,
                  "multiple-choice tasks, a JSON object a line: query, choices, gold; by log-likelihood")
      .type_name("FILE");
  parser.add_flag("--layers", words.wants_layers, "also the error of each layer and product, of 8 windows");
  parser
      .add_option("--report", words.report,
                  "write report.html, a page that needs nothing else, and its data as report.json, with --layers")
      .type_name("DIR");
  parser.add_option("--compare", words.compare, "another checkpoint for the report's size against loss; repeatable")
      .type_name("CKPT")
      .repeatable()
      .needs("--report")
      .needs("--against");
  parser.add_flag("--special-tokens", words.parses_special,
                  "read special tokens' names in the text (<unk>, </s>) as those tokens, not as text");
}

EvaluationRequest request_of(const Words& words) {
  EvaluationRequest request;
  request.checkpoint = words.model.checkpoint;
  request.original = words.against;
  request.text = read_input(words.text, kMaxTextBytes);
  request.loading = load_options(words.model);
  request.original_loading.device = request.loading.device;
  request.context = words.context;
  request.logits = words.logits;
  if (!words.memory_limit.empty()) request.memory_limit = parse_bytes(words.memory_limit);
  request.windows = words.windows;
  if (words.kind == kLlamaCppWindows) request.kind = WindowKind::kLlamaCpp;
  if (!words.tasks.empty()) {
    request.tasks = read_input(words.tasks, kMaxTextBytes);
    request.tasks_name = words.tasks;
  }
  request.wants_layers = words.wants_layers || !words.report.empty();
  request.parses_special = words.parses_special;
  return request;
}

// One bar a checkpoint.
Evaluation evaluate_one(EvaluationRequest request, const std::string& checkpoint, const CommonOptions& common) {
  Progress progress("evaluate", !common.is_quiet, ProgressUnit::kTokens);
  request.checkpoint = checkpoint;
  request.progress = [&](std::int64_t done, std::int64_t total) {
    progress.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
  };
  return evaluate_checkpoint(request);
}

// Until one of them was stopped.
std::vector<EvaluatedCheckpoint> evaluate_all(const EvaluationRequest& request, const Words& words,
                                              const CommonOptions& common) {
  std::vector<std::string> paths = {words.model.checkpoint};
  paths.insert(paths.end(), words.compare.begin(), words.compare.end());
  std::vector<EvaluatedCheckpoint> out;
  for (const std::string& path : paths) {
    EvaluationRequest of = request;
    if (!out.empty()) {
      of.wants_layers = false;
      of.tasks.clear();
    }
    out.push_back({path, evaluate_one(of, path, common)});
    if (out.back().result.accuracy.was_stopped) break;
  }
  return out;
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  InterruptWatch interrupt;  // before OpenMP's threads
  interrupt.end_at_once();
  check_room_left();
  if (words.model.threads > 0) set_thread_count(words.model.threads);
  EvaluationRequest request = request_of(words);
  request.loading_now = [&](bool is_loading) { is_loading ? interrupt.end_at_once() : interrupt.request_only(); };
  request.stop = interrupt.token();
  std::vector<EvaluatedCheckpoint> all = evaluate_all(request, words, common);
  const EvaluatedCheckpoint first = all.front();
  warn_of_special_names(first.result, words.text, words.parses_special);
  if (common.is_json) {
    print_json(json_of(first.result));
  } else {
    print_evaluation(first.result);
  }
  if (all.back().result.accuracy.was_stopped) return say_stopped("the result is of the windows finished");
  all.erase(all.begin());
  if (!words.report.empty()) {
    report_evaluation(words.report, request, first, all, words.text);
    if (!common.is_json) print_line("report         " + words.report + "/report.html");
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_evaluate(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] {
    refuse_ranks("evaluate");
    return run(*words, common);
  };
}

}  // namespace halfbyte::cli

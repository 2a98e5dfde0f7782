// halfbyte perplexity CKPT --text FILE [--against SRC] [--policies all]
#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/evaluate.h>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/policy.h"
#include "tools/cli/progress.h"
#include "tools/cli/read_input.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"
#include "tools/model/perplexity_steps.h"
#include "tools/model/policy_table.h"

namespace halfbyte::cli {
namespace {

struct Words : PerplexityWords {
  std::string text;
  std::string policies;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> out;
  std::istringstream in(list);
  for (std::string item; std::getline(in, item, ',');) out.push_back(item);
  return out;
}

Check policy_list() {
  const auto check = [](std::string& value) -> std::string {
    if (value == "all") return "";
    if (value.empty()) return "expected policies, with commas between them, or all";
    for (std::string& item : split(value)) {
      if (std::string problem = dtype_policy().problem_with(item); !problem.empty()) return problem;
    }
    return "";
  };
  return {check};
}

void declare(OptionParser& parser, Words& words) {
  declare_model(parser, words.model);
  declare_adapters(parser, words.adapters);
  parser.add_option("--text", words.text, "text to predict, UTF-8; -: standard input").type_name("FILE").required();
  parser
      .add_option("--ctx", words.context,
                  "tokens a window; the second half of each is scored; 512 or what the model has room for")
      .check(window_size());
  parser.add_option("--chunks", words.chunks, "most windows; 0: all of the text").check(window_count()).show_default();
  parser.add_option("--windows", words.windows, "'llama.cpp': the windows and scored tokens of llama-perplexity")
      .check(window_kind())
      .show_default();
  parser.add_checkpoint("--against", words.against, "the original: adds KL divergence and top-1 agreement")
      .type_name("SRC");
  parser.add_option("--against-dtype", words.against_dtype, "dtype policy of the original")
      .check(policy_word())
      .show_default();
  parser
      .add_option("--policies", words.policies,
                  "one table over dtype policies instead: 'all', or some with commas between them")
      .type_name("LIST")
      .check(policy_list())
      .excludes("--dtype");
  parser.add_flag("--special-tokens", words.parses_special,
                  "read special tokens' names in the text (<unk>, </s>) as those tokens, not as text");
}

// The text's tokens; what it spells of special ones is said.
MeasuredText tokens_of(const Words& words, const models::Tokenizer& tokenizer, const std::string& text) {
  MeasuredText measured = measured_text(words, tokenizer, text);
  if (measured.special.count > 0) {
    log_warning(words.text + ": spells " + counted(static_cast<std::int64_t>(measured.special.count), "name") +
                " of special tokens (" + measured.special.example + "), read as " +
                (words.parses_special ? "those tokens" : "text; --special-tokens reads them as those tokens"));
  }
  return measured;
}

void print_result(const PerplexityResult& result) {
  print_line("perplexity     " + fixed(result.perplexity, 4) + " over " + std::to_string(result.tokens) + " tokens");
  if (!result.divergence) return;
  print_line("original's     " + fixed(*result.reference_perplexity, 4));
  print_line("KL divergence  mean " + fixed(result.divergence->kl_mean, 5) + ", 99th percentile " +
             fixed(result.divergence->kl_p99, 5));
  print_line("top-1 agrees   " + fixed(100 * result.divergence->top1_agreement, 2) + " %");
  print_line("logits off by  " + fixed(result.divergence->max_logit_difference, 5) + " of the largest");
}

void print_rows(const PolicyTableRequest& request, const std::vector<PolicyRow>& rows, bool is_json) {
  (is_json ? print_policy_table_json : print_policy_table)(request, rows);
}

ExitStatus run_table(const Words& words, const CommonOptions& common, InterruptWatch& interrupt) {
  const std::string text = read_input(words.text, kMaxTextBytes);
  const auto tokenizer = wanted_tokenizer(words.model.checkpoint);
  MeasuredText measured = tokens_of(words, *tokenizer, text);
  PolicyTableRequest request{words.model,         {}, reference_words(words), std::move(measured.tokens),
                             tokenizer->prefix(), {}};
  request.special_names = measured.special.count;
  request.policies = words.policies == "all" ? policy_names() : split(words.policies);
  request.options = options_of(words);
  const auto rows = std::make_shared<PolicyRows>();  // the last words outlive this call where it throws
  interrupt.end_at_once([rows, request, is_json = common.is_json] {
    const std::vector<PolicyRow> finished = rows->finished();
    if (!finished.empty()) print_rows(request, finished, is_json);
  });
  measure_policies(request, common, *rows);
  interrupt.request_only();
  const std::vector<PolicyRow> all = rows->finished();
  print_rows(request, all, common.is_json);
  const bool is_any_measured = std::ranges::any_of(all, [](const PolicyRow& row) { return row.problem.empty(); });
  return is_any_measured ? ExitStatus::kDone : ExitStatus::kBadData;
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  InterruptWatch interrupt;  // before OpenMP's threads
  interrupt.end_at_once();
  if (!words.policies.empty() && !words.adapters.empty())
    throw UsageError("--adapter goes with one policy; leave --policies away");
  if (!words.policies.empty()) return run_table(words, common, interrupt);
  const std::string text = read_input(words.text, kMaxTextBytes);
  const Model model = load_model(words.model, common);
  const auto tokenizer = wanted_tokenizer(words.model.checkpoint);
  const MeasuredText measured = tokens_of(words, *tokenizer, text);
  const auto adapters = beside(model, words.adapters);
  std::optional<Model> reference;
  if (!words.against.empty()) reference = load_model(reference_words(words), common);
  PerplexityOptions options = options_of(words);
  interrupt.request_only();
  std::optional<Progress> progress(std::in_place, "perplexity", !common.is_quiet, ProgressUnit::kTokens);
  options.progress = [&](std::int64_t done, std::int64_t total) {
    progress->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
  };
  options.stop = interrupt.token();
  const PerplexityResult result = perplexity(model.module(), measured.tokens, tokenizer->prefix(), options,
                                             reference ? &reference->module() : nullptr);
  progress.reset();
  if (common.is_json) {
    print_json(json_of(result, measured.special.count));
  } else {
    print_result(result);
  }
  return result.was_stopped ? say_stopped("the result is of the windows finished") : ExitStatus::kDone;
}

}  // namespace

Action prepare_perplexity(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

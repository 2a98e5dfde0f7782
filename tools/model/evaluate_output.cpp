#include "tools/model/evaluate_output.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Interval& mean) { return {{"value", mean.value}, {"low", mean.low}, {"high", mean.high}}; }

// Five bins a power of ten, from 1e-7 to 10; what is less is in the first, what is more in the last.
ordered_json histogram_of(const std::vector<TokenScore>& scores) {
  constexpr int kBins = 40;
  constexpr double kBinsPerDecade = 5, kFirst = -7;
  std::array<std::int64_t, kBins> counts{};
  for (const TokenScore& score : scores) {
    const double place = (std::log10(std::max(score.divergence, 1e-30)) - kFirst) * kBinsPerDecade;
    ++counts[static_cast<std::size_t>(std::clamp(std::floor(place), 0.0, kBins - 1.0))];
  }
  ordered_json out = ordered_json::array();
  for (int i = 0; i < kBins; ++i) {
    const auto edge = [](int bin) { return std::pow(10, kFirst + bin / kBinsPerDecade); };
    out.push_back({{"from", edge(i)}, {"to", edge(i + 1)}, {"tokens", counts[static_cast<std::size_t>(i)]}});
  }
  return out;
}

ordered_json json_of(const WorstToken& worst) {
  const TokenScore& score = worst.score;
  return {{"window", score.window},
          {"position", score.position},
          {"kl", score.divergence},
          {"before", worst.before},
          {"token", worst.token},
          {"after", worst.after},
          {"choice", worst.choice},
          {"original_choice", worst.original_choice},
          {"log_probability", score.log_probability},
          {"original_log_probability", score.original_log_probability}};
}

ordered_json json_of(const ChoiceResult& choices) {
  const auto known = [](const std::optional<Interval>& mean) { return mean ? json_of(*mean) : ordered_json(); };
  return {{"count", choices.tasks},
          {"acc", json_of(choices.accuracy)},
          {"acc_norm", json_of(choices.normalised)},
          {"original_acc", known(choices.original_accuracy)},
          {"original_acc_norm", known(choices.original_normalised)},
          {"agreement", known(choices.agreement)}};
}

ordered_json json_of(const LayerError& error) {
  return {{"name", error.name},
          {"layer", error.layer < 0 ? ordered_json() : ordered_json(error.layer)},
          {"module", error.module},
          {"alone", error.alone},
          {"together", error.together ? ordered_json(*error.together) : ordered_json()}};
}

std::string with_reach(const Interval& mean, int digits, double unit = 1) {
  return fixed(mean.value * unit, digits) + "  (" + fixed(mean.low * unit, digits) + " to " +
         fixed(mean.high * unit, digits) + ")";
}

}  // namespace

ordered_json json_of(const Evaluation& result) {
  const Accuracy& accuracy = result.accuracy;
  ordered_json json = {{"original", result.original.empty() ? ordered_json() : ordered_json(result.original)},
                       {"passes_over_text", result.passes_over_text},
                       {"context", result.context},
                       {"windows", accuracy.windows},
                       {"tokens", accuracy.tokens},
                       {"text_tokens", result.text_tokens},
                       {"special_names", result.special_names},
                       {"stopped", accuracy.was_stopped},
                       {"perplexity", json_of(accuracy.perplexity)}};
  if (result.choices) json["tasks"] = json_of(*result.choices);
  if (!accuracy.loss) return json;
  const Loss& loss = *accuracy.loss;
  json["original_perplexity"] = json_of(loss.original_perplexity);
  json["perplexity_ratio"] = json_of(loss.perplexity_ratio);
  json["kl_mean"] = json_of(loss.kl_mean);
  json["kl_median"] = loss.kl_median;
  json["kl_p99"] = loss.kl_p99;
  json["kl_p999"] = loss.kl_p999;
  json["kl_largest"] = loss.kl_largest;
  json["top1_agreement"] = json_of(loss.top1_agreement);
  json["top5_agreement"] = json_of(loss.top5_agreement);
  json["kl_histogram"] = histogram_of(accuracy.scores);
  json["worst_tokens"] = ordered_json::array();
  for (const WorstToken& worst : result.worst) json["worst_tokens"].push_back(json_of(worst));
  if (result.layers.empty()) return json;
  json["layers"] = ordered_json::array();
  for (const LayerError& error : result.layers) json["layers"].push_back(json_of(error));
  return json;
}

void print_choices(const ChoiceResult& choices) {
  print_line("tasks          acc " + with_reach(choices.accuracy, 2, 100) + " %, acc_norm " +
             with_reach(choices.normalised, 2, 100) + " % of " + counted(choices.tasks, "task"));
  if (!choices.agreement) return;
  print_line("  original's   acc " + with_reach(*choices.original_accuracy, 2, 100) + " %, acc_norm " +
             with_reach(*choices.original_normalised, 2, 100) + " %; both choose the same " +
             with_reach(*choices.agreement, 2, 100) + " %");
}

void print_evaluation(const Evaluation& result) {
  const Accuracy& accuracy = result.accuracy;
  print_line("perplexity     " + with_reach(accuracy.perplexity, 4) + " over " + counted(accuracy.tokens, "token") +
             " of " + counted(accuracy.windows, "window"));
  if (result.choices) print_choices(*result.choices);
  if (!accuracy.loss) return;
  const Loss& loss = *accuracy.loss;
  print_line("original's     " + with_reach(loss.original_perplexity, 4));
  print_line("ratio          " + with_reach(loss.perplexity_ratio, 5));
  print_line("KL divergence  " + with_reach(loss.kl_mean, 6));
  print_line("  its tokens   median " + fixed(loss.kl_median, 6) + ", 99 % below " + fixed(loss.kl_p99, 5) +
             ", 99.9 % below " + fixed(loss.kl_p999, 5) + ", largest " + fixed(loss.kl_largest, 4));
  print_line("top-1 agrees   " + with_reach(loss.top1_agreement, 2, 100) + " %");
  print_line("top-5 shared   " + with_reach(loss.top5_agreement, 2, 100) + " %");
  print_line("in brackets: 95 % confidence, of the means of windows");
}

void warn_of_special_names(const Evaluation& result, const std::string& file, bool were_parsed) {
  if (result.special_names == 0) return;
  log_warning(file + ": spells " + counted(static_cast<std::int64_t>(result.special_names), "name") +
              " of special tokens (" + result.special_example + "), read as " +
              (were_parsed ? "those tokens" : "text; --special-tokens reads them as those tokens"));
}

}  // namespace halfbyte::cli

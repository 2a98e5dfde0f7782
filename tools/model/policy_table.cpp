#include "tools/model/policy_table.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include <nlohmann/json.hpp>

#include <halfbyte/linear.h>

#include "loader/thread_count.h"
#include "models/architectures/architecture.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/model/launched_group.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kGenTokens = 32;
// Short runs are repeated more often: the fastest is what this machine does when nothing else runs on it.
constexpr int kLeastRuns = 3;
constexpr int kMostRuns = 20;
constexpr double kEnoughSeconds = 1;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

TokenIds prompt_of(const Model& model, const PolicyTableRequest& request) {
  const std::int64_t room = model.config().max_position_embeddings - kGenTokens;
  const auto size = static_cast<std::size_t>(std::clamp<std::int64_t>(room, 1, request.options.context));
  return {request.text.begin(),
          request.text.begin() + static_cast<std::ptrdiff_t>(std::min(size, request.text.size()))};
}

// One bar over all policies. Measuring the speed counts as the runs that it has at least.
class TableProgress {
 public:
  TableProgress(const PolicyTableRequest& request, bool is_wanted)
      : bar_("policies", is_wanted, ProgressUnit::kTokens), policies_(request.policies.size()) {}

  void begin(std::size_t policy) { begin_ = policy * policy_tokens_; }
  void evaluated(std::int64_t done, std::int64_t total, std::size_t prompt_tokens) {
    evaluation_tokens_ = static_cast<std::uint64_t>(total);
    run_tokens_ = prompt_tokens + kGenTokens;
    policy_tokens_ = evaluation_tokens_ + kLeastRuns * run_tokens_;
    show(static_cast<std::uint64_t>(done));
  }
  void ran(int run, std::size_t tokens) {
    const auto done = static_cast<std::uint64_t>(std::min(run, kLeastRuns - 1)) * run_tokens_ + tokens;
    show(evaluation_tokens_ + done);
  }

 private:
  void show(std::uint64_t done) { bar_.update(begin_ + done, policies_ * policy_tokens_); }
  Progress bar_;
  std::uint64_t policies_;
  std::uint64_t begin_ = 0, policy_tokens_ = 0, evaluation_tokens_ = 0, run_tokens_ = 0;
};

// When each token came. Units: seconds since the start.
std::vector<double> generate_once(const Model& model, const TokenIds& prompt,
                                  const std::function<void(std::size_t)>& progress) {
  std::vector<double> times;
  const auto start = Clock::now();
  GenerateOptions options{.max_gen_len = kGenTokens, .temperature = 0, .ignore_eos = true};
  options.on_token = [&](std::size_t, std::int64_t) {
    times.push_back(seconds_since(start));
    progress(prompt.size() + times.size());
    return true;
  };
  options.on_prompt = [&](std::int64_t done, std::int64_t) { progress(static_cast<std::size_t>(done)); };
  model.generate({prompt}, options);
  return times;
}

// Of the fastest of several runs over the text's beginning, on a model that has run already.
void measure_speed(const Model& model, const TokenIds& prompt, TableProgress& progress, PolicyRow& row) {
  const auto start = Clock::now();
  for (int run = 0; run < kLeastRuns || (run < kMostRuns && seconds_since(start) < kEnoughSeconds); ++run) {
    const std::vector<double> times =
        generate_once(model, prompt, [&](std::size_t tokens) { progress.ran(run, tokens); });
    if (times.size() < 2) return;
    const double decode_seconds = times.back() - times.front();
    row.prefill_tokens_per_s = std::max(row.prefill_tokens_per_s, static_cast<double>(prompt.size()) / times.front());
    row.decode_tokens_per_s = std::max(row.decode_tokens_per_s, static_cast<double>(times.size() - 1) / decode_seconds);
  }
}

// Each runs as often as it is fast, which ranks would not agree on.
void refuse_ranks() {
  if (launched_group()) throw UsageError("--policies is not for ranks; measure one policy at a time");
}

void measure(const PolicyTableRequest& request, const Model& reference, const CommonOptions& common,
             TableProgress& progress, PolicyRow& row) {
  ModelWords words = request.model;
  words.dtype = row.policy;
  const auto start = Clock::now();
  const Model model = load_model(words, common);
  row.load_seconds = seconds_since(start);
  row.mapped_bytes = model.report().bytes_with(Placement::kMapped);
  row.own_bytes = model.report().bytes_with(Placement::kCast) + model.report().bytes_with(Placement::kCopied);
  const TokenIds prompt = prompt_of(model, request);
  PerplexityOptions options = request.options;
  options.progress = [&](std::int64_t done, std::int64_t total) { progress.evaluated(done, total, prompt.size()); };
  row.result = perplexity(model.module(), request.text, request.prefix, options, &reference.module());
  measure_speed(model, prompt, progress, row);
}

PolicyRow row_of(const std::string& policy, const PolicyTableRequest& request, const Model& reference,
                 const CommonOptions& common, TableProgress& progress) {
  PolicyRow row{policy, {}};
  try {
    measure(request, reference, common, progress, row);
  } catch (const Error& error) {
    row.problem = said(error);
  }
  return row;
}

std::string mean_kl(double value) { return value < 5e-7 ? "0" : fixed(value, 6); }

ordered_json json_of(const PolicyRow& row) {
  if (!row.problem.empty()) return {{"dtype", row.policy}, {"problem", row.problem}};
  return {{"dtype", row.policy},
          {"problem", nullptr},
          {"perplexity", row.result.perplexity},
          {"kl_mean", row.result.divergence->kl_mean},
          {"kl_p99", row.result.divergence->kl_p99},
          {"top1_agreement", row.result.divergence->top1_agreement},
          {"max_logit_difference", row.result.divergence->max_logit_difference},
          {"load_s", row.load_seconds},
          {"mapped_bytes", row.mapped_bytes},
          {"own_bytes", row.own_bytes},
          {"prefill_tokens_per_s", row.prefill_tokens_per_s},
          {"decode_tokens_per_s", row.decode_tokens_per_s},
          {"evaluation_tokens_per_s", row.result.tokens_per_s}};
}

std::vector<std::string> cells_of(const PolicyRow& row) {
  if (!row.problem.empty()) return {row.policy, "-", "-", "-", "-", "-", "-", "-", "-", "-"};
  const Divergence& divergence = *row.result.divergence;
  return {row.policy,
          fixed(row.result.perplexity, 4),
          mean_kl(divergence.kl_mean),
          fixed(100 * divergence.top1_agreement, 2) + " %",
          fixed(divergence.max_logit_difference, 5),
          human_seconds(row.load_seconds),
          human_bytes(row.mapped_bytes),
          human_bytes(row.own_bytes),
          fixed(row.prefill_tokens_per_s, 0),
          fixed(row.decode_tokens_per_s, 1)};
}

// The first row that was measured; null: none was.
const PolicyRow* measured(const std::vector<PolicyRow>& rows) {
  const auto row = std::ranges::find(rows, std::string(), &PolicyRow::problem);
  return row == rows.end() ? nullptr : &*row;
}

}  // namespace

void PolicyRows::add(PolicyRow row) {
  const std::lock_guard lock(mutex_);
  rows_.push_back(std::move(row));
}

std::vector<PolicyRow> PolicyRows::finished() const {
  const std::lock_guard lock(mutex_);
  return rows_;
}

void measure_policies(const PolicyTableRequest& request, const CommonOptions& common, PolicyRows& rows) {
  refuse_ranks();
  const Model reference = load_model(request.reference, common);
  TableProgress progress(request, !common.is_quiet);
  for (std::size_t i = 0; i < request.policies.size(); ++i) {
    progress.begin(i);
    rows.add(row_of(request.policies[i], request, reference, common, progress));
  }
}

void print_policy_table(const PolicyTableRequest& request, const std::vector<PolicyRow>& rows) {
  if (const PolicyRow* row = measured(rows)) {
    print_line(printable("against " + request.reference.checkpoint + " under " + request.reference.dtype +
                         " (perplexity " + fixed(*row->result.reference_perplexity, 4) + "), " +
                         std::to_string(row->result.tokens) + " scored tokens, " + counted(thread_count(), "thread") +
                         ", " + quant::isa_name()));
  }
  Table table({{"policy"},
               {"perplexity", Align::kRight},
               {"KL mean", Align::kRight},
               {"top-1 agrees", Align::kRight},
               {"logits off by", Align::kRight},
               {"load", Align::kRight},
               {"mapped", Align::kRight},
               {"own memory", Align::kRight},
               {"prefill/s", Align::kRight},
               {"decode/s", Align::kRight}});
  for (const PolicyRow& row : rows) table.add(cells_of(row));
  table.print();
  for (const PolicyRow& row : rows) {
    if (!row.problem.empty()) print_line(printable(row.policy + ": " + row.problem));
  }
}

void print_policy_table_json(const PolicyTableRequest& request, const std::vector<PolicyRow>& rows) {
  const PolicyRow* row = measured(rows);
  ordered_json policies = ordered_json::array();
  for (const PolicyRow& each : rows) policies.push_back(json_of(each));
  print_json({{"checkpoint", request.model.checkpoint},
              {"reference",
               {{"checkpoint", request.reference.checkpoint},
                {"dtype", request.reference.dtype},
                {"perplexity", row ? ordered_json(*row->result.reference_perplexity) : ordered_json()}}},
              {"tokens", row ? ordered_json(row->result.tokens) : ordered_json()},
              {"special_names", request.special_names},
              {"context", request.options.context},
              {"threads", thread_count()},
              {"isa", quant::isa_name()},
              {"policies", policies}});
}

}  // namespace halfbyte::cli

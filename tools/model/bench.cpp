// halfbyte bench CKPT: speed of prefill and decode, medians of several runs, beside the speed of memory.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/linear.h>

#include "loader/files/platform.h"
#include "loader/thread_count.h"
#include "models/architectures/model_config.h"
#include "quant/memory_bandwidth.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/whole_file.h"
#include "tools/model/bench_profile.h"
#include "tools/model/launched_group.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"
#include "tools/model/step_cost.h"
#include "tools/model/timed_runs.h"

namespace halfbyte::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Words {
  ModelWords model;
  std::vector<std::string> adapters;
  RunSizes sizes{.gen_tokens = 64};  // prompt_tokens 0: kPromptTokens, or what the context has room for
  std::int64_t runs = 5;
  std::int64_t loads = 1;
  bool has_profile = false;
  std::string trace;  // of the profile; empty: none

  bool wants_profile() const { return has_profile || !trace.empty(); }
};

constexpr std::int64_t kPromptTokens = 512;
// Of the prompt with which a load is timed.
constexpr std::int64_t kFirstPromptTokens = 8;

void declare(OptionParser& parser, Words& words) {
  declare_model(parser, words.model);
  declare_adapters(parser, words.adapters);
  parser
      .add_option("--prompt-tokens", words.sizes.prompt_tokens,
                  "tokens of the prompt; 512, or what the context has room for")
      .check(whole_number(1, 1'000'000));
  parser.add_option("--gen-tokens", words.sizes.gen_tokens, "tokens decoded after it")
      .check(whole_number(1, 1'000'000))
      .show_default();
  parser.add_option("--batch", words.sizes.batch, "sequences side by side; rates are of all of them together")
      .check(whole_number(1, 4096))
      .show_default();
  parser.add_option("--depth", words.sizes.depth, "tokens of context before the prompt, which are not timed")
      .check(whole_number(0, 10'000'000))
      .show_default();
  parser.add_option("--runs", words.runs, "runs to take the median of, after one that is not counted")
      .check(whole_number(1, 1000))
      .show_default();
  parser.add_option("--loads", words.loads, "times to load the model, for the median of the time to a first token")
      .check(whole_number(1, 1000))
      .show_default();
  parser.add_flag("--profile", words.has_profile,
                  "also where the time goes, kind of work by kind, in as many more runs");
  parser
      .add_option("--profile-trace", words.trace,
                  "write the profile's prefill and first steps for chrome://tracing or Perfetto; implies --profile")
      .type_name("FILE");
}

// Errors: UsageError.
void check_device(const Words& words, const std::string& device) {
  if (!words.wants_profile() || device == "cpu") return;
  throw UsageError("--profile sees what the CPU's threads do; this model is on " + device + ": ask with --device cpu");
}

// Errors: as write_whole().
void write_trace(const std::string& path, const RunProfile& profile) {
  const ProfileRecord records[] = {profile.prefill, profile.decode};
  write_whole(path, chrome_trace(records));
}

// The command line's sizes, made to fit the model where the user left them open. Errors: UsageError.
void fit_context(RunSizes& sizes, std::int64_t context) {
  if (sizes.prompt_tokens == 0) {
    sizes.prompt_tokens = std::max<std::int64_t>(1, std::min(kPromptTokens, context - sizes.depth - sizes.gen_tokens));
  }
  const std::int64_t wanted = sizes.depth + sizes.prompt_tokens + sizes.gen_tokens;
  if (wanted <= context) return;
  throw UsageError(std::string(sizes.depth > 0 ? "--depth, " : "") + "--prompt-tokens and --gen-tokens make " +
                   std::to_string(wanted) + "; this model's context is " + std::to_string(context));
}

struct Loads {
  std::vector<double> load;            // seconds
  std::vector<double> to_first_token;  // seconds, from the call on, with a short prompt
};

// The model, loaded as often as asked; the one before is gone by then, so that memory is of one.
Model timed_loads(const Words& words, const CommonOptions& common, Loads& loads) {
  std::optional<Model> model;
  for (std::int64_t i = 0; i < words.loads; ++i) {
    model.reset();
    const auto start = Clock::now();
    model = load_model(words.model, common);
    loads.load.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    const std::int64_t context = model->config().max_position_embeddings;
    TimedRuns(*model, {.prompt_tokens = std::min(kFirstPromptTokens, context)}).run();
    loads.to_first_token.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return *model;
}

// Rates of the runs. Units: tokens, of all sequences, and bytes a second.
struct Rates {
  std::vector<double> prefill, decode, memory;
  std::uint64_t peak_rss_bytes = 0;  // before the memory's reader took its buffer
  double cache_value_bytes = 0;
  std::optional<RunProfile> profile;
};

RunProfile profiled_runs(TimedRuns& runs, std::int64_t count) {
  std::vector<RunProfile> profiles(static_cast<std::size_t>(count));
  for (RunProfile& profile : profiles) runs.run(&profile);
  return median_of(profiles);
}

// Memory is read before each run and after the last: what slows one slows its neighbours.
Rates timed_runs(const Model& model, const Words& words) {
  Rates rates;
  TimedRuns runs(model, words.sizes);
  runs.run();
  rates.peak_rss_bytes = files::peak_rss_bytes();
  rates.cache_value_bytes = runs.cache_value_bytes();
  quant::MemoryReader memory;
  const auto batch = static_cast<double>(words.sizes.batch);
  for (std::int64_t i = 0; i < words.runs; ++i) {
    rates.memory.push_back(memory.bytes_per_second());
    const RunTimes times = runs.run();
    rates.prefill.push_back(batch * static_cast<double>(words.sizes.prompt_tokens) / times.prefill);
    rates.decode.push_back(batch * static_cast<double>(words.sizes.gen_tokens) / times.decode);
  }
  rates.memory.push_back(memory.bytes_per_second());
  if (words.wants_profile()) rates.profile = profiled_runs(runs, words.runs);
  return rates;
}

struct Findings {
  double prefill, decode, memory;  // medians
  double prefill_gflops;
  double weight_bytes, cache_bytes;  // that a decode step reads, of all sequences
  double read_bytes_per_s;           // by decode
};

Findings summary(const models::ModelConfig& config, const LoadReport& report, const RunSizes& sizes,
                 const Rates& rates) {
  Findings found{};
  found.prefill = median(rates.prefill);
  found.decode = median(rates.decode);
  found.memory = median(rates.memory);
  const double flop = prefill_flop(config, sizes.prompt_tokens, sizes.depth);  // of one sequence
  found.prefill_gflops = flop * found.prefill / static_cast<double>(sizes.prompt_tokens) / 1e9;
  found.weight_bytes = decode_weight_bytes(config, report, sizes.batch);
  const double past = static_cast<double>(sizes.depth + sizes.prompt_tokens) +
                      static_cast<double>(sizes.gen_tokens - 1) / 2;  // on average
  found.cache_bytes = static_cast<double>(sizes.batch) * attended_bytes(config, past, rates.cache_value_bytes);
  found.read_bytes_per_s = (found.weight_bytes + found.cache_bytes) * found.decode / static_cast<double>(sizes.batch);
  return found;
}

std::uint64_t loaded_bytes(const LoadReport& report) {
  return report.bytes_with(Placement::kMapped) + report.bytes_with(Placement::kCast) +
         report.bytes_with(Placement::kCopied) + report.bytes_with(Placement::kMoved);
}

nlohmann::ordered_json json_of(const Words& words, const LoadReport& report, const Loads& loads, const Rates& rates,
                               const Findings& found) {
  const RunSizes& sizes = words.sizes;
  return {{"prefill_tokens_per_s", found.prefill},
          {"decode_tokens_per_s", found.decode},
          {"time_to_first_token_s", static_cast<double>(sizes.batch * sizes.prompt_tokens) / found.prefill},
          {"load_s", median(loads.load)},
          {"load_to_first_token_s", median(loads.to_first_token)},
          {"prompt_tokens", sizes.prompt_tokens},
          {"gen_tokens", sizes.gen_tokens},
          {"batch", sizes.batch},
          {"depth", sizes.depth},
          {"runs", words.runs},
          {"loads", words.loads},
          {"prefill_gflops", found.prefill_gflops},
          {"step_weight_bytes", found.weight_bytes},
          {"step_cache_bytes", found.cache_bytes},
          {"read_bytes_per_s", found.read_bytes_per_s},
          {"memory_bytes_per_s", found.memory},
          {"memory_share", found.read_bytes_per_s / found.memory},
          {"threads", thread_count()},
          {"dtype", report.policy},
          {"compute", report.compute},
          {"key_values", report.key_values},
          {"device", report.device},
          {"isa", quant::isa_name()},
          {"weight_bytes", loaded_bytes(report)},
          {"peak_rss_bytes", rates.peak_rss_bytes},
          {"samples",
           {{"prefill_tokens_per_s", rates.prefill},
            {"decode_tokens_per_s", rates.decode},
            {"memory_bytes_per_s", rates.memory},
            {"load_s", loads.load},
            {"load_to_first_token_s", loads.to_first_token}}}};
}

std::string gigabytes(double bytes_per_s) { return fixed(bytes_per_s / 1e9, 1) + " GB/s"; }

void print(const Words& words, const LoadReport& report, const Loads& loads, const Rates& rates,
           const Findings& found) {
  const RunSizes& sizes = words.sizes;
  const auto row = [&](const std::string& name, std::int64_t tokens, double rate, const std::string& remark) {
    return std::vector<std::string>{name, std::to_string(tokens) + " tokens", fixed(rate, 1) + " tokens/s", remark};
  };
  Table table({{"", Align::kLeft}, {"", Align::kRight}, {"median", Align::kRight}, {"", Align::kLeft}});
  table.add(
      row("prefill", sizes.batch * sizes.prompt_tokens, found.prefill, fixed(found.prefill_gflops, 0) + " GFLOPS"));
  table.add(row("decode", sizes.batch * sizes.gen_tokens, found.decode,
                human_bytes(static_cast<std::uint64_t>(found.weight_bytes + found.cache_bytes)) + " a step, " +
                    gigabytes(found.read_bytes_per_s)));
  table.print();
  if (report.device == "cpu") {
    print_line("memory    " + gigabytes(found.memory) + " when nothing but read; decode reads at " +
               fixed(100 * found.read_bytes_per_s / found.memory, 0) + " % of that");
  }
  print_line("load      " + human_seconds(median(loads.load)) + ", to a first token after 8 " +
             human_seconds(median(loads.to_first_token)) + ", peak memory " + human_bytes(rates.peak_rss_bytes));
  print_line(counted(words.runs, "run") + " of " + counted(sizes.batch, "sequence") + " after " +
             counted(sizes.depth, "token") + ", " + counted(thread_count(), "thread") + ", " + quant::isa_name() +
             ", " + report.policy + ", " + report.compute + ", " + report.device);
}

void print_profile(const Words& words, const RunProfile& profile, double memory) {
  print(profile, memory);
  if (!words.trace.empty()) print_line("\ntrace     " + words.trace + ", for chrome://tracing or ui.perfetto.dev");
}

ExitStatus run(Words& words, const CommonOptions& common) {
  InterruptWatch interrupt;  // before OpenMP's threads
  interrupt.end_at_once();
  if (!words.trace.empty()) check_writable(words.trace);
  Loads loads;
  const Model model = timed_loads(words, common, loads);
  check_device(words, model.report().device);
  const models::ModelConfig& config = model.config();
  fit_context(words.sizes, config.max_position_embeddings);
  const auto adapters = beside(model, words.adapters);
  const Rates rates = timed_runs(model, words);
  const Findings found = summary(config, model.report(), words.sizes, rates);
  if (!words.trace.empty() && is_first_rank()) write_trace(words.trace, *rates.profile);
  if (common.is_json) {
    nlohmann::ordered_json json = json_of(words, model.report(), loads, rates, found);
    if (model.report().device != "cpu")
      json["memory_share"] = nullptr;  // it was this machine's memory, not the device's
    if (rates.profile) {
      json["profile"] = json_of(*rates.profile, found.memory);
      json["profile"]["trace"] = words.trace.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(words.trace);
    }
    print_json(json);
  } else {
    print(words, model.report(), loads, rates, found);
    if (rates.profile) print_profile(words, *rates.profile, found.memory);
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_bench(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

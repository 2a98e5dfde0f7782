// halfbyte bench CKPT: speed of prefill and decode, medians of several runs.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include <halfbyte/causal_lm.h>
#include <halfbyte/linear.h>

#include "loader/files/platform.h"
#include "models/architectures/architecture.h"
#include "models/modules/session.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Words {
  ModelWords model;
  std::int64_t prompt_tokens = 0;  // 0: kPromptTokens, or what the context has room for
  std::int64_t gen_tokens = 64;
  std::int64_t runs = 3;
};

constexpr std::int64_t kPromptTokens = 512;

void declare(CLI::App& app, Words& words) {
  declare_model(app, words.model);
  app.add_option("--prompt-tokens", words.prompt_tokens, "tokens of the prompt; 512, or what the context has room for")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--gen-tokens", words.gen_tokens, "tokens decoded after it")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--runs", words.runs, "runs to take the median of, after one that is not counted")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// GPUs answer before they are done; a value on the CPU is there only then.
void wait_for(const at::Tensor& tensor) { tensor.cpu(); }

struct Run {
  double prefill_seconds;
  double decode_seconds;
};

Run run_once(const models::CausalLM& model, const Words& words) {
  const std::int64_t vocab = model.config().vocab_size;
  const at::Tensor prompt =
      at::arange(words.prompt_tokens, at::kLong).mul(7919).remainder(vocab).unsqueeze(0).to(model.device());
  models::Session session = model.make_session(1, words.prompt_tokens + words.gen_tokens);
  const auto start = Clock::now();
  at::Tensor next = model.head(model.hidden(prompt, session).narrow(1, words.prompt_tokens - 1, 1)).argmax(-1);
  wait_for(next);
  const double prefill = seconds_since(start);
  const auto decode_start = Clock::now();
  for (std::int64_t i = 0; i < words.gen_tokens; ++i) next = model.head(model.hidden(next, session)).argmax(-1);
  wait_for(next);
  return {prefill, seconds_since(decode_start)};
}

// The command line's sizes, made to fit the model where the user left them open. Errors: UsageError.
void fit_context(Words& words, std::int64_t context) {
  if (words.prompt_tokens == 0) {
    words.prompt_tokens = std::max<std::int64_t>(1, std::min(kPromptTokens, context - words.gen_tokens));
  }
  if (words.prompt_tokens + words.gen_tokens <= context) return;
  throw UsageError("--prompt-tokens and --gen-tokens make " + std::to_string(words.prompt_tokens + words.gen_tokens) +
                   "; this model's context is " + std::to_string(context));
}

ExitStatus run(Words& words, const CommonOptions& common) {
  const auto load_start = Clock::now();
  const Model model = load_model(words.model, common);
  const double load_seconds = seconds_since(load_start);
  fit_context(words, model.module().config().max_position_embeddings);
  const c10::InferenceMode guard;
  run_once(model.module(), words);
  std::vector<double> prefill;
  std::vector<double> decode;
  for (std::int64_t i = 0; i < words.runs; ++i) {
    const Run result = run_once(model.module(), words);
    prefill.push_back(static_cast<double>(words.prompt_tokens) / result.prefill_seconds);
    decode.push_back(static_cast<double>(words.gen_tokens) / result.decode_seconds);
  }
  const std::uint64_t weight_bytes =
      model.report().bytes_with(Placement::kMapped) + model.report().bytes_with(Placement::kCast) +
      model.report().bytes_with(Placement::kCopied) + model.report().bytes_with(Placement::kMoved);
  nlohmann::ordered_json json = {{"prefill_tokens_per_s", median(prefill)},
                                 {"decode_tokens_per_s", median(decode)},
                                 {"time_to_first_token_s", static_cast<double>(words.prompt_tokens) / median(prefill)},
                                 {"load_s", load_seconds},
                                 {"prompt_tokens", words.prompt_tokens},
                                 {"gen_tokens", words.gen_tokens},
                                 {"runs", words.runs},
                                 {"threads", at::get_num_threads()},
                                 {"dtype", model.report().policy},
                                 {"compute", model.report().compute},
                                 {"device", model.report().device},
                                 {"isa", quant::isa_name()},
                                 {"weight_bytes", weight_bytes},
                                 {"peak_rss_bytes", files::peak_rss_bytes()}};
  if (common.is_json) {
    print_json(json);
    return ExitStatus::kDone;
  }
  print_line("prefill  " + fixed(median(prefill), 1) + " tokens/s (" + std::to_string(words.prompt_tokens) +
             " tokens)");
  print_line("decode   " + fixed(median(decode), 1) + " tokens/s (" + std::to_string(words.gen_tokens) + " tokens)");
  print_line("load     " + human_seconds(load_seconds) + ", peak memory " + human_bytes(files::peak_rss_bytes()) +
             ", " + std::to_string(at::get_num_threads()) + " threads, " + quant::isa_name() + ", " +
             model.report().policy + ", " + model.report().compute + ", " + model.report().device);
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_bench(CLI::App& app, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(app, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

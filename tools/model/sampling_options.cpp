#include "tools/model/sampling_options.h"

#include <limits>

#include <CLI/CLI.hpp>

#include "tools/cli/parse.h"

namespace halfbyte::cli {

void declare_sampling(CLI::App& app, GenerateOptions& options) {
  app.add_option("--max-gen-len", options.max_gen_len, "most tokens to add")
      ->check(whole_number(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--temperature", options.temperature, "0: always the most likely token")
      ->check(number_between(0, 1000))
      ->capture_default_str();
  app.add_option("--top-p", options.top_p, "sample among the likeliest tokens that make up this probability")
      ->check(number_between(1e-9, 1))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "same seed, same text")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--stop-token", options.stop_tokens, "stop at this token id too; repeatable")
      ->check(whole_number(0, 1'000'000'000))
      ->expected(1)
      ->take_all();
}

const char* finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      break;
  }
  return "cancelled";
}

}  // namespace halfbyte::cli

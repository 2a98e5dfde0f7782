#include "tools/text/sampling_options.h"

#include <limits>

#include "tools/cli/parse.h"

namespace halfbyte::cli {
namespace {

Check not_empty() {
  return {[](std::string& value) -> std::string { return value.empty() ? "an empty text stops nothing" : ""; }};
}

}  // namespace

void declare_sampling(OptionParser& parser, SamplingWords& words) {
  GenerateOptions& options = words.options;
  parser.add_option("--max-gen-len", options.max_gen_len, "most tokens to add")
      .check(whole_number(0, 1'000'000'000))
      .show_default();
  parser.add_option("--temperature", options.temperature, "0: always the most likely token")
      .check(number_between(0, 1000))
      .show_default();
  parser.add_option("--top-k", options.top_k, "sample among so many of the likeliest tokens; 0: all")
      .check(whole_number(0, 1'000'000'000))
      .show_default();
  parser.add_option("--top-p", options.top_p, "sample among the likeliest tokens that make up this probability")
      .check(number_between(1e-9, 1))
      .show_default();
  parser
      .add_option("--min-p", options.min_p,
                  "sample among tokens at least this many times as likely as the likeliest one; 0: all")
      .check(number_between(0, 1))
      .show_default();
  parser
      .add_option("--repetition-penalty", options.repetition_penalty,
                  "makes tokens that came before, also in the prompt, less likely; 1: none")
      .check(number_between(0.01, 100))
      .show_default();
  parser.add_option("--seed", options.seed, "same seed, same text")
      .check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      .show_default();
  parser.add_option("--stop", words.stop_texts, "stop before this text; repeatable")
      .type_name("TEXT")
      .check(not_empty())
      .repeatable()
      .as_written();
  parser.add_option("--stop-token", options.stop_tokens, "stop at this token id too; repeatable")
      .check(whole_number(0, 1'000'000'000))
      .repeatable();
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

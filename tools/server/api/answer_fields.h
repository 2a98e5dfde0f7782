// What chat completions and completions are told alike.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/server/http_server.h"

#include "tools/server/api/body.h"

namespace halfbyte::server {

struct AnswerFields {
  models::Sampling sampling = {.temperature = 1, .top_p = 1};  // OpenAI's defaults
  std::optional<std::uint64_t> seed = {};
  std::optional<std::int64_t> max_tokens = {};  // nothing: as many as the context has room for
  std::int64_t count = 1;                       // answers to each prompt
  std::vector<std::string> stops = {};
  int top_logprobs = -1;  // as serving::Request has it
  bool ignores_eos = false;
  bool streams = false, includes_usage = false;
};

// Fields of both endpoints, those that are accepted and change nothing included.
inline constexpr auto kAnswerFields = std::to_array<std::string_view>(
    {"model", "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "stream", "stream_options",
     "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "max_tokens", "ignore_eos",
     // Of OpenAI's accounts and services.
     "user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"});

inline constexpr std::int64_t kMostAnswers = 16;  // of "n", and of prompts in one request
inline constexpr std::int64_t kMostStops = 16;

// All but logprobs, which the two endpoints spell differently. Errors: Problem 400.
AnswerFields answer_fields_of(const Body& body, const ServedModel& model);

}  // namespace halfbyte::server

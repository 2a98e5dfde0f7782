// One request while it is served.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include <halfbyte/linear.h>

#include "models/generation/sampler.h"
#include "models/serving/engine.h"
#include "models/sessions/session.h"

namespace halfbyte::serving {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  Sequence(Ticket ticket_, Request request_)
      : ticket(ticket_),
        request(std::move(request_)),
        sampler(request.sampling, request.seed, request.stream),
        tokens(request.prompt),
        read_together(static_cast<std::int64_t>(tokens.size())) {
    sampler.see(tokens);
    end.prompt_tokens = read_together;
  }

  std::int64_t length() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  // Of its tokens, those whose keys and values are there.
  std::int64_t read() const noexcept { return session ? session->length() : 0; }
  bool is_prompt_read() const noexcept { return read() >= read_together; }
  // Whether what is read now are tokens that passes of many rows read.
  bool reads_many() const noexcept { return !is_prompt_read() && read_together > kFewTokens; }
  std::int64_t chosen() const noexcept { return length() - end.prompt_tokens; }

  static constexpr std::int64_t kFewTokens = quant::kDirectRows;

  Ticket ticket;
  Request request;
  models::Sampler sampler;
  TokenIds tokens;             // the prompt and what was chosen
  std::int64_t read_together;  // the first of them, that are read as a prompt is; the others as they were chosen
  std::int64_t room = 0;       // tokens that may still be chosen
  std::optional<models::Session> session;  // nothing: it waits
  // The first of its tokens whose keys and values are, bit for bit, those of a prompt that begins so.
  std::int64_t as_prompt = 0;
  std::vector<models::Session> snapshots;  // of its prompt's beginnings, where its session cannot be cut to them
  std::vector<float> sum = {};             // of hidden states, where they are pooled
  AnswerEnd end;
  Clock::time_point submitted = Clock::now();
  std::uint64_t admitted = 0;  // the later, the larger
};

inline double seconds_since(Sequence::Clock::time_point begin) {
  return std::chrono::duration<double>(Sequence::Clock::now() - begin).count();
}

}  // namespace halfbyte::serving

// Many answers from one model at once: what is asked for, and what is told of it. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/generate.h>

#include "models/generation/sampling.h"
#include "models/serving/token_filter.h"

namespace halfbyte::serving {

struct LikelyToken {
  std::int64_t token;
  double logprob;  // natural, under the model's own distribution
};

struct ChosenToken {
  std::int64_t token = -1;
  std::optional<double> logprob = {};       // where logprobs were asked for
  std::vector<LikelyToken> likeliest = {};  // as many as were asked for, the likeliest first
};

enum class Outcome { kStop, kLength, kContext, kCancelled, kFailed };

struct AnswerEnd {
  Outcome outcome = Outcome::kStop;
  ErrorCode code = ErrorCode::kContract;  // of kFailed
  std::string problem = {};
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;                     // of the prompt, whose keys and values were there already
  std::int64_t tokens = 0;                            // of the answer, a stop token not counted
  double queued_s = 0, first_token_s = 0, all_s = 0;  // since it was submitted
};

// How the hidden states of a text become one vector.
enum class Pooling { kMean, kLast };

struct Request {
  TokenIds prompt;
  models::Sampling sampling = {};
  std::uint64_t seed = 0, stream = 0;  // same seed and stream, same choices
  std::int64_t max_tokens = 0;         // of the answer
  TokenIds stop_tokens = {};           // end it, and are not part of it
  std::int64_t vocabulary = 0;         // ids from here on are never chosen: no tokenizer knows them; 0: all may be
  int top_logprobs = -1;               // likeliest tokens to give with each; 0: its own logprob alone; -1: nothing
  // Keys and values that came of tokens chosen one by one may serve it where they would be read together: a
  // conversation goes on without reading its last answer again. Else an answer depends on its request alone.
  bool continues_answers = false;
  std::shared_ptr<TokenFilter> filter = {};  // tokens that may come; null: all
  std::optional<Pooling> pooling = {};       // no answer is made: the prompt becomes a vector
  std::string client = {};                   // those of one client wait for each other, not for those of others
  // All from the engine's thread; they return soon, and throw nothing. on_token: false ends the answer as a stop token
  // does. After on_end nothing is called.
  std::function<bool(const ChosenToken& token)> on_token = {};
  std::function<void(std::vector<float> vector)> on_vector = {};
  std::function<void(const AnswerEnd& end)> on_end = {};
};

using Ticket = std::uint64_t;

struct EngineState {
  std::int64_t active = 0, waiting = 0;                                 // sequences now
  std::int64_t requests = 0, failed = 0, cancelled = 0, preempted = 0;  // since the start
  std::int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;        // since the start
  std::int64_t kept_bytes = 0, kept_limit = 0;  // of keys and values, what is shared counted once
  double busy_s = 0;                            // spent in passes
};

class Engine {
 public:
  virtual ~Engine() = default;
  // Nothing: as many wait as may. Errors: kInvalidArgument for a prompt that is empty, has unknown ids, is longer than
  // the context, or needs more memory than there is for keys and values.
  virtual std::optional<Ticket> submit(Request request) = 0;
  // It ends with kCancelled within a pass, unless it has ended. Of unknown tickets nothing.
  virtual void cancel(Ticket ticket) = 0;
  virtual EngineState state() const = 0;
};

}  // namespace halfbyte::serving

#include "models/generation/generate.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>

#include <halfbyte/backend_error.h>
#include <halfbyte/error.h>

#include "models/generation/passes.h"
#include "models/generation/prompt_cache.h"
#include "models/generation/sampler.h"
#include "models/generation/speculation.h"
#include "models/sessions/pass_watch.h"
#include "quant/rows_alike.h"

namespace halfbyte::models {
namespace {

// Positions whose logits are made at once when a prompt's log-probabilities are wanted.
constexpr std::int64_t kLogitRows = 64;

void check_options(const GenerateOptions& options) {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); };
  if (options.max_gen_len < 0) fail("max_gen_len is " + std::to_string(options.max_gen_len) + "; expected 0 or more");
  if (!(options.temperature >= 0))
    fail("temperature is " + std::to_string(options.temperature) + "; expected 0 or more");
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    fail("top_p is " + std::to_string(options.top_p) + "; expected more than 0 and at most 1");
  }
  if (options.top_k < 0) fail("top_k is " + std::to_string(options.top_k) + "; expected 0 or more");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    fail("min_p is " + std::to_string(options.min_p) + "; expected 0 to 1");
  if (!(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty)))
    fail("repetition_penalty is " + std::to_string(options.repetition_penalty) + "; expected more than 0");
}

void check_prompt(const TokenIds& prompt, std::size_t index, const ModelConfig& config) {
  const std::string which = "prompt " + std::to_string(index + 1);
  if (prompt.empty()) throw Error(ErrorCode::kInvalidArgument, which + " has no tokens");
  if (static_cast<std::int64_t>(prompt.size()) > config.max_position_embeddings) {
    throw Error(ErrorCode::kInvalidArgument, which + " has " + std::to_string(prompt.size()) +
                                                 " tokens; this model's context is " +
                                                 std::to_string(config.max_position_embeddings));
  }
  for (const std::int64_t token : prompt) {
    if (token >= 0 && token < config.vocab_size) continue;
    throw Error(ErrorCode::kInvalidArgument, which + " has token id " + std::to_string(token) +
                                                 "; this model's vocabulary is 0 to " +
                                                 std::to_string(config.vocab_size - 1));
  }
}

Sampling sampling_of(const GenerateOptions& options) {
  return {.repetition_penalty = options.repetition_penalty,
          .temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .min_p = options.min_p};
}

// One prompt being continued.
struct Sequence {
  Generation result;
  Sampler sampler;
  TokenIds tokens;  // prompt and what came of it
  std::size_t prompt_tokens;
  std::int64_t room;  // tokens it may still gain
  Speculation speculation;
  std::int64_t last_token = 0;
  bool is_done = false;
};

class Generator {
 public:
  Generator(const StepModel& model, const std::vector<TokenIds>& prompts, const GenerateOptions& options,
            const StepModel* draft)
      : model_(model), prompts_(prompts), options_(options), sessions_(open_sessions()) {
    if (!options.ignore_eos) stop_tokens_ = model.config().eos_token_ids;
    stop_tokens_.insert(stop_tokens_.end(), options.stop_tokens.begin(), options.stop_tokens.end());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::int64_t context =
          model.config().max_position_embeddings - static_cast<std::int64_t>(prompts[i].size());
      sequences_.push_back({{},
                            Sampler(sampling_of(options), options.seed, i),
                            prompts[i],
                            prompts[i].size(),
                            std::min(options.max_gen_len, context),
                            Speculation(model.config(), options.lookup, draft)});
      sequences_.back().sampler.see(prompts[i]);
      to_read_ += static_cast<std::int64_t>(prompts[i].size());
    }
    to_read_ -= cached_;
  }

  std::vector<Generation> run() {
    check_memory();
    for (std::size_t i = 0; i < prompts_.size(); ++i) start(i);
    while (std::ranges::any_of(sequences_, [](const Sequence& s) { return !s.is_done; })) {
      step();
    }
    if (options_.cache) options_.cache->state().close(sequences_.front().tokens);
    std::vector<Generation> results;
    for (Sequence& sequence : sequences_) results.push_back(std::move(sequence.result));
    return results;
  }

 private:
  // Sessions take memory as they grow. What this machine would never give is said now, not after hours.
  void check_memory() const {
    if (!model_.is_on_cpu()) return;
    std::int64_t bytes = 0, longest = 0;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      const std::int64_t tokens = static_cast<std::int64_t>(sequences_[i].prompt_tokens) + sequences_[i].room;
      bytes += sessions_[i].bytes_for(tokens);
      longest = std::max(longest, tokens);
    }
    try {
      const std::unique_ptr<std::byte[]> all(new std::byte[static_cast<std::size_t>(bytes)]);
      *static_cast<volatile std::byte*>(all.get()) = std::byte{};  // a compiler may leave out what nobody reads
    } catch (const std::bad_alloc& error) {
      throw BackendError(ErrorCode::kNoResources,
                         "keys and values of " + std::to_string(sequences_.size()) + " sequences of up to " +
                             std::to_string(longest) +
                             " tokens: there is not enough memory for them; take fewer tokens or sequences at once, a "
                             "smaller model, or another device",
                         error.what());
    }
  }

  // One a prompt.
  std::span<Session> open_sessions() {
    if (!options_.cache) {
      for (std::size_t i = 0; i < prompts_.size(); ++i) own_sessions_.push_back(model_.make_session());
      return own_sessions_;
    }
    PromptCache::State& cache = options_.cache->state();
    cached_ = cache.open(model_, prompts_.front(), !(options_.echo && options_.logprobs));
    return {&*cache.session, 1};
  }

  // False when the caller's stop token broke the work off: passes alone, since what callbacks throw is the caller's.
  template <class Work>
  bool unless_stopped(const Work& passes, std::function<void(std::int64_t, std::int64_t)> progress = {}) const {
    const PassWatch watch(options_.stop, std::move(progress));
    try {
      PassWatch::check();
      passes();
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInterrupted || !options_.stop.stop_requested()) throw;
      return false;
    }
  }

  static void finish(Sequence& sequence, FinishReason reason) {
    if (sequence.is_done) return;
    sequence.is_done = true;
    sequence.result.finish_reason = reason;
  }

  FinishReason reason_of_no_room(const Sequence& sequence) const {
    const bool is_full = static_cast<std::int64_t>(sequence.tokens.size()) >= model_.config().max_position_embeddings;
    const auto made = sequence.tokens.size() - sequence.prompt_tokens;
    return is_full && static_cast<std::int64_t>(made) < options_.max_gen_len ? FinishReason::kContext
                                                                             : FinishReason::kLength;
  }

  // Runs the prompt, records it if asked, and chooses the first token.
  void start(std::size_t index) {
    Sequence& sequence = sequences_[index];
    const TokenIds& prompt = prompts_[index];
    if (options_.echo) sequence.result.tokens = prompt;
    if (options_.echo && options_.logprobs) sequence.result.logprobs.emplace_back(std::nullopt);
    sequence.result.cached_tokens = cached_;
    std::unique_ptr<StepModel::Given> last;
    std::int64_t tokens = 0;  // of the last pass
    const std::span fresh = std::span(prompt).subspan(static_cast<std::size_t>(cached_));
    const auto use = [&](std::int64_t begin, std::int64_t count, std::unique_ptr<StepModel::Given> given) {
      if (options_.echo && options_.logprobs) record_prompt(sequence, prompt, begin, count, *given);
      last = std::move(given);
      tokens = count;
    };
    if (!read(index, fresh, prompt.size(), use)) return finish(sequence, FinishReason::kCancelled);
    read_ += static_cast<std::int64_t>(fresh.size());
    if (options_.cache) options_.cache->state().keep_prompt();
    if (sequence.room == 0) return finish(sequence, reason_of_no_room(sequence));
    accept(index, last->logits(tokens - 1, 1));
  }

  static constexpr int kMostStages = 8;  // that passes are longer for

  // Of a prompt, of which `begin` tokens were read and `count` more are being read, layer by layer.
  auto prompt_progress(std::int64_t begin, std::int64_t count) const {
    return [this, begin, count](std::int64_t done, std::int64_t layers) {
      if (options_.on_prompt && read_ < to_read_) options_.on_prompt(read_ + begin + count * done / layers, to_read_);
    };
  }

  std::int64_t most_a_pass() const {
    // All but the first and the last stage wait for the others at both ends of a pass.
    const bool is_long = model_.stages() > 1 && !(options_.echo && options_.logprobs);
    const std::int64_t most = kPrefillTokens * (is_long ? std::min(model_.stages(), kMostStages) : 1);
    return options_.cache ? options_.cache->state().most_a_pass(most) : most;
  }

  // Runs tokens through the model, some at a time, for a sequence that will be `length` long at least. False when
  // stopped.
  template <class Use>
  bool read(std::size_t index, std::span<const std::int64_t> tokens, std::size_t length, const Use& use) {
    const auto size = static_cast<std::int64_t>(tokens.size());
    Session& session = sessions_[index];
    session.expect(static_cast<std::int64_t>(length));
    const quant::RowsAlike alike(kind_of_prompt(size));
    for (std::int64_t begin = 0, next = 0; begin < size; begin = next) {
      next = begin + std::min(most_a_pass(), size - begin);
      const std::int64_t count = next - begin;
      const auto ids = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
      const StepRow row{&session, count};
      const auto pass = [&] { use(begin, count, model_.step(ids, {&row, 1})); };
      if (!unless_stopped(pass, prompt_progress(begin, count))) return false;
      if (options_.cache) options_.cache->state().keep_branch();
    }
    return true;
  }

  // Longrope turns a sequence by other factors once it is longer than the original context: what was read by the old
  // ones is read again. Source: transformers, Phi3ForCausalLM.prepare_inputs_for_generation.
  void reread_if_outgrown(std::size_t index) {
    const Sequence& sequence = sequences_[index];
    const std::int64_t length = sessions_[index].length();
    const auto is_outgrown = [&](const RopeConfig& rope) {
      return rope.type == RopeType::kLongrope && length == rope.fixed_length();
    };
    if (sequence.is_done || std::ranges::none_of(model_.config().ropes, is_outgrown)) return;
    sessions_[index].cut(0);
    if (options_.cache) options_.cache->state().forget_earlier();
    const std::span tokens(sequence.tokens);
    read(index, tokens.first(static_cast<std::size_t>(length)), tokens.size(),
         [](std::int64_t, std::int64_t, std::unique_ptr<StepModel::Given>) {});
  }

  void record_prompt(Sequence& sequence, const TokenIds& prompt, std::int64_t begin, std::int64_t count,
                     StepModel::Given& given) {
    for (std::int64_t offset = 0; offset < count; offset += kLogitRows) {
      const std::int64_t rows = std::min(kLogitRows, count - offset);
      PassWatch::check();
      const std::span<const float> logits = given.logits(offset, rows);
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto next = static_cast<std::size_t>(begin + offset + row + 1);
        if (next < prompt.size())
          sequence.result.logprobs.emplace_back(log_probability(row_of(logits, row), prompt[next]));
      }
    }
  }

  std::span<const float> row_of(std::span<const float> logits, std::int64_t row) const {
    const auto width = static_cast<std::size_t>(model_.config().vocab_size);
    return logits.subspan(static_cast<std::size_t>(row) * width, width);
  }

  void cancel() {
    for (Sequence& sequence : sequences_) finish(sequence, FinishReason::kCancelled);
  }

  // One more token for every sequence that is not done; for the only one several, where guesses of them are right.
  void step() {
    std::vector<std::size_t> going;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (sequences_[i].is_done) continue;
      reread_if_outgrown(i);
      going.push_back(i);
    }
    if (going.size() == 1) return step_alone(going.front());
    std::vector<StepRow> rows;
    TokenIds next;
    for (const std::size_t i : going) {
      rows.push_back({&sessions_[i], 1});
      next.push_back(sequences_[i].last_token);
    }
    std::unique_ptr<StepModel::Given> given;
    std::span<const float> logits;
    const auto pass = [&] {
      const quant::RowsAlike alike;
      given = model_.step(next, rows);
      logits = given->logits(0, static_cast<std::int64_t>(next.size()));
    };
    if (!unless_stopped(pass)) return cancel();
    for (std::size_t i = 0; i < going.size(); ++i) accept(going[i], row_of(logits, static_cast<std::int64_t>(i)));
  }

  // The last token and guesses of the next ones go through the model in one pass, whose rows are what each would be in
  // a pass of its own.
  void step_alone(std::size_t index) {
    Sequence& sequence = sequences_[index];
    Session& session = sessions_[index];
    std::span<const std::int64_t> guesses;
    std::unique_ptr<StepModel::Given> given;
    std::span<const float> logits;
    const auto pass = [&] {
      guesses = sequence.speculation.guess(sequence.tokens, session, sequence.room - 1);
      TokenIds next = {sequence.last_token};
      next.insert(next.end(), guesses.begin(), guesses.end());
      const quant::RowsAlike alike;
      const StepRow row{&session, static_cast<std::int64_t>(next.size())};
      given = model_.step(next, {&row, 1});
      logits = given->logits(0, row.tokens);
    };
    if (!unless_stopped(pass)) return cancel();
    const std::size_t right = accept_guesses(index, guesses, logits);
    sequence.speculation.verified(right);
    sequence.result.guessed_tokens += static_cast<std::int64_t>(guesses.size());
    sequence.result.right_guesses += static_cast<std::int64_t>(right);
    if (right < guesses.size()) session.cut(session.length() - static_cast<std::int64_t>(guesses.size() - right));
  }

  // Chooses tokens as long as they are what was guessed. Returns how many were.
  std::size_t accept_guesses(std::size_t index, std::span<const std::int64_t> guesses, std::span<const float> logits) {
    const Sequence& sequence = sequences_[index];
    for (std::size_t right = 0;; ++right) {
      accept(index, row_of(logits, static_cast<std::int64_t>(right)));
      const bool is_right = right < guesses.size() && sequence.last_token == guesses[right];
      if (!is_right || sequence.is_done) return right;
    }
  }

  void accept(std::size_t index, std::span<const float> logits) {
    Sequence& sequence = sequences_[index];
    const std::int64_t token = sequence.sampler.sample(logits);
    sequence.last_token = token;
    sequence.tokens.push_back(token);
    if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) return finish(sequence, FinishReason::kStop);
    sequence.result.tokens.push_back(token);
    if (options_.logprobs) sequence.result.logprobs.emplace_back(log_probability(logits, token));
    --sequence.room;
    if (options_.on_token && !options_.on_token(index, token)) finish(sequence, FinishReason::kCancelled);
    if (options_.is_end && options_.is_end(index, token)) finish(sequence, FinishReason::kStop);
    if (sequence.room == 0) finish(sequence, reason_of_no_room(sequence));
  }

  const StepModel& model_;
  const std::vector<TokenIds>& prompts_;
  const GenerateOptions& options_;
  TokenIds stop_tokens_;
  std::vector<Sequence> sequences_;
  std::int64_t cached_ = 0;  // of the only prompt
  std::int64_t read_ = 0;    // tokens of prompts
  std::int64_t to_read_ = 0;
  std::vector<Session> own_sessions_;
  std::span<Session> sessions_;  // one a prompt
};

}  // namespace

std::vector<Generation> generate(const StepModel& model, const std::vector<TokenIds>& prompts,
                                 const GenerateOptions& options, const StepModel* draft) {
  check_options(options);
  if (options.cache && prompts.size() > 1)
    throw Error(ErrorCode::kInvalidArgument, "a prompt cache holds one sequence; generate from one prompt at a time");
  for (std::size_t i = 0; i < prompts.size(); ++i) check_prompt(prompts[i], i, model.config());
  if (prompts.empty()) return {};
  return Generator(model, prompts, options, draft).run();
}

}  // namespace halfbyte::models

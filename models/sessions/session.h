// What a model remembers of one sequence: of each layer what it keeps of the tokens so far. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/parallel/session_log.h"
#include "models/sessions/layer_state.h"
#include "models/sessions/rotary_tables.h"

namespace halfbyte::models {

class StateSource;
struct StateTensor;

// A pass leaves it as it was until commit(). It grows with its tokens. One thread at a time; forks of it may be used by
// other threads, each by one.
class Session {
 public:
  using Layers = std::vector<std::unique_ptr<LayerState>>;
  using Ropes = std::vector<std::shared_ptr<const RotaryTables>>;

  // `layers`: one state a layer; null: that layer keeps nothing. `ropes`: those of the model. `is_on_cpu`: so is what
  // they keep.
  explicit Session(Layers layers, Ropes ropes = {}, bool is_on_cpu = true);

  // Another of the same tokens, which costs little: what both have they share. A snapshot, or a sequence that goes on
  // otherwise.
  Session fork() const;

  // From now on others follow what becomes of it and of its forks.
  void follow_in(const std::shared_ptr<SessionLog>& log) { trace_ = SessionTrace(log); }
  const SessionTrace& trace() const noexcept { return trace_; }

  std::int64_t length() const noexcept { return length_; }
  bool is_on_cpu() const noexcept { return is_on_cpu_; }
  // Memory of all layers, what is shared with forks included, and what a sequence of so many tokens takes. Units:
  // bytes.
  std::int64_t bytes() const noexcept;
  std::int64_t bytes_for(std::int64_t tokens) const noexcept;
  // Of each piece that forks may share.
  void visit_memory(const LayerState::MemoryVisitor& visit) const;
  // kInt8: a layer keeps them in 8 bits; latent and recurrent layers never do.
  KeyValues key_values() const noexcept;
  // Precondition: that layer's mixer keeps a State.
  template <class State>
  State& state(std::int64_t layer) const {
    return static_cast<State&>(*layers_.at(static_cast<std::size_t>(layer)));
  }

  // Where frequencies depend on how long a sequence is (RopeConfig::fixed_length), it is taken to be at least this
  // long: what comes in several passes turns as if it came in one.
  void expect(std::int64_t tokens) noexcept { expected_ = tokens; }
  std::int64_t expected() const noexcept { return expected_; }
  std::span<const std::shared_ptr<const RotaryTables>> ropes() const noexcept { return ropes_; }
  // Whether its positions up to `end` turn as in every sequence.
  bool is_rope_fixed(std::size_t rope, std::int64_t end) const;

  // A query or key of the pass was not finite, which attention over few keys can hide: LibTorch's gives 0 for NaN.
  void note_not_finite() noexcept { is_finite_ = false; }
  // Whether none was since the last call.
  bool was_finite() noexcept { return std::exchange(is_finite_, true); }

  // The last pass's tokens are part of the sequence.
  void commit(std::int64_t tokens);

  // All that it is of its tokens, as it is now; and the same again.
  struct Contents {
    Layers layers;
    std::int64_t length;
  };
  Contents contents() const { return {forked(), length_}; }
  void put_back(Contents contents);

  // To how few tokens, but none, it can be cut.
  std::int64_t least() const noexcept;
  // To its first `length` tokens. Errors: kInvalidArgument where it has fewer, or something of a layer is missing then.
  void cut(std::int64_t length);
  // To as many of its first tokens, `most` at most, as can be without reading them again: cut, or as one of `earlier`
  // (forks of it, from when it was shorter) is, or to none. Returns how many.
  std::int64_t go_back(std::int64_t most, std::span<const Session> earlier);

  // All that its layers keep, as "layers.3.keys". Precondition: it has tokens. `whole`: a session that goes on from
  // these tokens; what cutting it gives is left out. Lives no longer than this session.
  std::vector<StateTensor> tensors(const Session* whole = nullptr) const;
  // The same taken back by a session without tokens; names begin with `prefix`, and `whole` is the same again.
  // Errors: kCorrupt naming what is missing or not what these layers keep; the session is then to be thrown away. Of
  // both: kUnsupported where other ranks follow it, which have parts of their own.
  void restore(std::int64_t length, std::int64_t expected, const StateSource& source, const std::string& prefix = "",
               const Session* whole = nullptr);

 private:
  Layers forked() const;
  void check_alone() const;
  bool is_cut_of(const Session* whole, std::size_t layer, std::int64_t length) const;

  Layers layers_;
  Ropes ropes_;
  bool is_on_cpu_;
  std::int64_t length_ = 0;
  std::int64_t expected_ = 0;
  bool is_finite_ = true;
  SessionTrace trace_ = {};
};

// The new tokens of one sequence in a pass.
struct StepRow {
  Session* session;
  std::int64_t tokens;
};

}  // namespace halfbyte::models

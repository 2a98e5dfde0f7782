// One forward pass over sequences with equally many new tokens: how far they are, and what those tokens see.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "models/architectures/model_config.h"
#include "models/modules/rotary.h"
#include "models/sessions/session.h"

namespace halfbyte::models {

// The keys that a layer's attention looks at, of the `span` that there are.
struct KeyRange {
  Reach reach;
  std::int64_t begin = 0;
  std::int64_t count = 0;
  at::Tensor mask = {};    // bool, true: attend; (rows or 1, 1, tokens, count); undefined: see is_causal
  bool is_causal = false;  // no mask is needed beyond the causal one with an empty past
};

// Keys and values of the tokens that a pass sees, each row's. Shape: (rows, kv_heads, keys, head_dim).
struct SeenKeys {
  at::Tensor keys, values;
};

// Made once a pass, used by every layer.
struct Pass {
  std::vector<Session*> sessions;  // one a row
  std::int64_t rows;
  std::int64_t tokens;                // new ones in each row
  std::vector<std::int64_t> past;     // tokens before them, per row
  std::int64_t span;                  // keys to attend to: longest past + tokens
  bool is_uniform;                    // all rows have the same past
  std::vector<RotaryTable> rotaries;  // one a rope; (rows, tokens, 1, rotary_dim / 2)
  std::vector<KeyRange> ranges;       // one a reach that differs here
  // What layers are given beside the stream: (rows, tokens, layers, layer_input_size). Undefined: nothing.
  at::Tensor layer_inputs = {};
  // Of the new tokens in what they are part of: (rows, tokens), int64. Undefined: they follow those before them.
  at::Tensor positions = {};
  // Of layers that others attend to as well, by index, for who runs layers one by one: taken from there, and put there
  // by a layer that it names. Null: they go through the sessions.
  std::map<std::int64_t, SeenKeys>* shared_keys = nullptr;

  // `reach`: a layer's.
  const KeyRange& keys(const Reach& reach) const;
  bool is_first() const noexcept { return is_uniform && past.front() == 0; }
  void note_not_finite() const noexcept;
};

// Of the layers, each once.
std::vector<Reach> reaches_of(const ModelConfig& config);

// `tokens`: new ones of each session. `reaches`: of the layers. `device`: of the model.
Pass make_pass(std::vector<Session*> sessions, std::int64_t tokens, std::span<const Reach> reaches, at::Device device);

}  // namespace halfbyte::models

// A model as what generates from it sees it: steps of sessions, and logits of what they gave. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "models/architectures/model_config.h"
#include "models/sessions/session.h"

namespace halfbyte::models {

class StepModel {
 public:
  // What a step gave.
  class Given {
   public:
    virtual ~Given() = default;
    // Of `count` of its tokens from `first` on. Shape: (count, vocab_size); until the next call, or this goes.
    virtual std::span<const float> logits(std::int64_t first, std::int64_t count) = 0;
  };

  virtual ~StepModel() = default;
  virtual const ModelConfig& config() const = 0;
  virtual Session make_session() const = 0;
  // Token ids of all rows one after another, appended to the rows' sessions. Errors: as CausalLM::step, the sessions as
  // they were.
  virtual std::unique_ptr<Given> step(std::span<const std::int64_t> ids, std::span<const StepRow> rows) const = 0;
  // The same as long as it is the same model; empty: it is not known.
  virtual std::weak_ptr<const void> identity() const = 0;
  virtual bool is_on_cpu() const { return true; }
  virtual int stages() const { return 1; }  // of layers, which ranks are in
};

}  // namespace halfbyte::models

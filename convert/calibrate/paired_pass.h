// One layer twice: the original's, and the same with what was quantised so far; and what the products of both are given
// for the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "convert/calibrate/layer_runner.h"
#include "convert/calibrate/meeting.h"
#include "convert/calibrate/moments.h"
#include "convert/calibrate/states.h"

namespace halfbyte::convert::calibrate {

class PairedPass {
 public:
  struct Layer {
    const LayerRunner& runner;
    const States& given;
  };

  // `is_wanted`: whether the product's inputs are to be gathered; asked by its path. `factors`: as of Moments.
  // `output`: may take what the original layer gives, in the last stage; null: nobody does.
  // `meeting`: of the parts that have other sequences, and gather together; null: alone.
  PairedPass(Layer original, Layer quantized, std::function<bool(const models::Linear&)> is_wanted,
             at::ScalarType factors, StatesSink* output, Meeting* meeting = nullptr)
      : original_(original),
        quantized_(quantized),
        is_wanted_(std::move(is_wanted)),
        factors_(factors),
        output_(output),
        meeting_(meeting) {}

  // Of the first products of the quantised layer whose inputs were not gathered yet: those that share their input, and
  // of experts all that stand alike; with their drift, but for experts, which the two layers may give different tokens.
  // As many as have room in so many bytes of sums, but one at least. No more of the layers is run than they need.
  // Nothing: all were.
  std::optional<Moments> next_stage(std::uint64_t most_bytes);
  // Whether the inputs of all were gathered, as far as is known: then no stage is left.
  bool has_all() const noexcept { return has_all_; }
  // Whether `output` is still to be written, after the last stage: where that was of experts, or there was none.
  bool lacks_output() const noexcept { return output_ != nullptr; }

 private:
  // What a stage leaves for later ones.
  struct Ahead {
    bool is_last = false, has_others = false, has_room = true;
  };

  bool is_left(const models::Linear& linear) const;
  template <class Stage, class Add>
  void run_stage(Stage& stage, const Add& add);
  Moments gather_alone(Ahead& ahead, std::uint64_t most_bytes);
  Moments gather_together(Ahead& ahead, std::uint64_t most_bytes);

  Layer original_, quantized_;
  std::function<bool(const models::Linear&)> is_wanted_;
  at::ScalarType factors_;
  StatesSink* output_;  // null: it has all
  Meeting* meeting_;
  std::set<std::string> done_;  // paths
  bool has_all_ = false;
};

}  // namespace halfbyte::convert::calibrate

// A model's layers one after another: what each is given, the codes that are chosen by it, what it gives the next.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <halfbyte/calibrate.h>

#include "convert/calibrate/choosing.h"
#include "convert/calibrate/layer_files.h"
#include "convert/calibrate/layer_pass.h"
#include "convert/calibrate/layer_runner.h"
#include "convert/calibrate/meeting.h"
#include "convert/calibrate/memory.h"
#include "convert/calibrate/method.h"
#include "convert/calibrate/paired_pass.h"
#include "convert/calibrator.h"

namespace halfbyte::convert::calibrate {

std::int64_t token_count(const CalibrationTokens& tokens);

class Run {
 public:
  struct Job {
    const CalibrationTokens& tokens;
    const Method& method;
    const CalibrateOptions& calibrate;
    const files::Checkpoint& source;
    const Plan& plan;
    const QuantizeOptions& options;
    const CalibrationPlace& place;
  };
  using Take = std::function<void(std::int64_t layer, const LayerRecord& record)>;

  explicit Run(const Job& job);

  const LayerFiles& files() const noexcept { return files_; }
  // Goes on behind the layers that an earlier run finished. `take` is called with each layer, those too.
  void run(const Take& take);

 private:
  using Sequences = std::span<const std::vector<std::int64_t>>;

  // Returns the hash of what the first layer is given.
  std::string embed(Sequences sequences, StatesWriter out) const;
  std::string embed_own() const;
  // Those of an earlier run that can be believed, from the first layer on.
  std::vector<LayerRecord> earlier_layers(std::string given) const;
  bool holds_states(std::int64_t layer, const std::vector<LayerRecord>& done) const;
  // How many layers all parts go on behind, of those that this one believes. The room for sums is from then on the
  // least that a part has: all gather the same.
  std::int64_t agree(const std::vector<LayerRecord>& done);
  // What all parts know of the layer that each has run by its own sequences.
  void meet(LayerRecord& record, std::int64_t layer) const;
  bool is_sound(const LayerRecord& record, std::int64_t layer) const;
  bool fits_plan(const StoredMatrix& stored, std::uint64_t size_bytes) const;
  // Through a layer whose codes are there, for what it gives.
  void advance(std::int64_t layer, const LayerRecord& record);
  LayerRecord run_layer(std::int64_t layer);
  void choose_by_original(std::int64_t layer, CodesWriter& codes, LayerRecord& record);
  void choose_in_turn(std::int64_t layer, CodesWriter& codes, LayerRecord& record);
  // Who writes what is for all.
  bool is_first() const noexcept { return !meeting_ || meeting_->index() == 0; }
  // Through the quantised layer, whose codes are put back.
  std::string advance_quantized(std::int64_t layer);
  void report(std::int64_t layers_done) const;
  std::string prefix_of(std::int64_t layer) const;
  std::function<bool(const models::Linear&)> is_wanted() const;
  LayerPass pass(const LayerRunner& runner);
  StatesWriter next_states(std::int64_t layer) const;

  std::optional<Place> place_of(const models::Linear& linear) const;
  void choose(Moments& moments, CodesWriter& codes, LayerRecord& record);
  void put_back_all(const LayerRecord& record, std::int64_t layer) const;

  Job job_;
  mutable std::unique_ptr<Meeting> meeting_;  // null: alone
  Sequences own_;                             // that this run reads
  LayerRunner runner_;
  std::optional<LayerRunner> quantized_;  // where the method follows it
  std::int64_t layers_;
  LayerFiles files_;
  CalibrationMemory memory_;
  std::exception_ptr refused_;  // by the limit, unless no layer is left to run; null: it is not
  std::map<std::string, std::size_t> planned_;
};

}  // namespace halfbyte::convert::calibrate

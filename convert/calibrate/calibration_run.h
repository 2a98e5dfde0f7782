// A model's layers one after another: what each is given, the codes that are chosen by it, what it gives the next.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include <halfbyte/calibrate.h>

#include "convert/calibrate/layer_files.h"
#include "convert/calibrate/layer_pass.h"
#include "convert/calibrate/layer_runner.h"
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
  // A weight's place among the tensors of the plan.
  struct Place {
    std::size_t tensor;
    std::size_t matrix;  // of a stack
  };

  // Returns the hash of what the first layer is given.
  std::string embed(StatesWriter out) const;
  // Those of an earlier run that can be believed, from the first layer on.
  std::vector<LayerRecord> earlier_layers(std::string given) const;
  bool holds_states(std::int64_t layer, const std::vector<LayerRecord>& done) const;
  bool is_sound(const LayerRecord& record, std::int64_t layer) const;
  bool fits_plan(const StoredMatrix& stored, std::uint64_t size_bytes) const;
  // Through a layer whose codes are there, for what it gives.
  void advance(std::int64_t layer, const LayerRecord& record);
  LayerRecord run_layer(std::int64_t layer);
  void choose_by_original(std::int64_t layer, CodesWriter& codes, LayerRecord& record);
  void choose_in_turn(std::int64_t layer, CodesWriter& codes, LayerRecord& record);
  // Through the quantised layer, whose codes are put back.
  std::string advance_quantized(std::int64_t layer);
  void report(std::int64_t layers_done) const;
  std::string prefix_of(std::int64_t layer) const;
  std::function<bool(const models::Linear&)> is_wanted() const;
  LayerPass pass(const LayerRunner& runner) const;
  StatesWriter next_states(std::int64_t layer) const;

  std::optional<Place> place_of(const models::Linear& linear) const;
  void choose(Moments& moments, CodesWriter& codes, LayerRecord& record) const;
  void choose(Part& part, CodesWriter& codes, LayerRecord& record) const;
  void put_back_all(const LayerRecord& record, std::int64_t layer) const;

  Job job_;
  LayerRunner runner_;
  std::optional<LayerRunner> quantized_;  // where the method follows it
  std::int64_t layers_;
  LayerFiles files_;
  CalibrationMemory memory_;
  std::map<std::string, std::size_t> planned_;
};

}  // namespace halfbyte::convert::calibrate

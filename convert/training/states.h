// What training goes on from after it was stopped or killed: folders of a step each, which appear when they are whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/text.h>

#include "loader/files/platform.h"
#include "models/training/optimizer.h"

namespace halfbyte::convert {

struct TrainingState {
  std::int64_t step = 0;  // updates that were done
  nlohmann::json record;  // what else there is to know, as JSON
  std::vector<training::NamedTensor> parameters, optimizer;
};

// One process at a time.
class TrainingStates {
 public:
  // `keep`: how many of the newest stay.
  TrainingStates(files::fs::path folder, std::int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

  bool is_there() const;  // one at least, whole or not
  // The newest that is whole. What is not is named in `notes`. Errors: kIo.
  std::optional<TrainingState> newest(std::vector<Text>& notes) const;
  // Errors: kIo, kNoResources; what was there before is there still.
  void write(const TrainingState& state) const;

 private:
  std::vector<std::int64_t> steps() const;  // ascending
  files::fs::path path_of(std::int64_t step) const;

  files::fs::path folder_;
  std::int64_t keep_;
};

}  // namespace halfbyte::convert

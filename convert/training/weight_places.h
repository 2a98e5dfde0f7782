// Where a model's parameters are stored: under their own names, or as parts of stacks of experts.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

struct WeightPlace {
  std::string tensor;        // of the checkpoint, as it is stored
  std::int64_t expert = -1;  // whose part it is; -1: all of it
};

// Of a checkpoint of a known family, from the tables that loading goes by.
class WeightPlaces {
 public:
  explicit WeightPlaces(const files::Checkpoint& checkpoint);

  // Errors: kUnsupported naming a parameter that the checkpoint has under no name of its own, that is packed there, or
  // of a dtype that is not written; one that config.json ties to another although both are stored.
  WeightPlace of(const std::string& parameter) const;

 private:
  const files::Checkpoint& checkpoint_;
  std::map<std::string, WeightPlace> parts_;  // of stacks
};

}  // namespace halfbyte::convert

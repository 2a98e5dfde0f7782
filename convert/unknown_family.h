// A family that halfbyte does not know: which of its matrices are none to quantise, as far as config.json's sizes say
// it. What is taken for a router, a gate, a convolution or a vocabulary is kept: a mistake there costs bytes alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

class UnknownFamily {
 public:
  // Of a family that is known, or without a config.json, nothing is assumed.
  explicit UnknownFamily(const files::Checkpoint& source);

  // Why a tensor stays that its name takes for a Linear ("as many rows as "num_experts" (64): taken for a router");
  // empty: nothing speaks against it.
  std::string reason_to_keep(const files::StoredTensor& tensor);
  // What was kept so, for the end of a sentence: "; kept: 24 with as many rows as ..."; empty: nothing.
  std::string assumed() const;

 private:
  struct Size {
    std::string key;
    std::int64_t value;
    std::size_t kind;  // of the table of kinds
  };
  std::vector<Size> sizes_;
  std::map<std::string, std::int64_t> kept_;  // reason -> tensors
};

}  // namespace halfbyte::convert

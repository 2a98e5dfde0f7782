// A checkpoint summed up for `inspect`: what is stored how, what it was before, how far it is from that.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::cli {

struct Tally {
  std::int64_t tensors = 0;
  std::uint64_t values = 0;
  std::uint64_t size_bytes = 0;
};

struct Inspection {
  std::uint64_t parameters = 0;  // values in parameters; buffers are not counted
  std::uint64_t parameter_bytes = 0;
  std::map<std::string, Tally> stored;                   // "sym_int4 g64" or "bfloat16" -> what is stored so
  std::map<std::string, Tally> original;                 // original dtype, or "not known"; bytes as they were
  std::map<std::string, std::vector<std::string>> kept;  // reason -> names
  std::int64_t with_error = 0;
  double rel_rmse = 0;  // over all tensors with an error, weighted by their number of values
  const files::TensorRecord* worst = nullptr;

  double bits_per_weight() const noexcept {
    return parameters == 0 ? 0 : 8.0 * static_cast<double>(parameter_bytes) / static_cast<double>(parameters);
  }
};

Inspection inspect(const files::Checkpoint& checkpoint);

std::string stored_as(const files::TensorRecord& tensor);            // "sym_int4 g64", "bfloat16"
std::string original_dtype_name(const files::TensorRecord& tensor);  // "bfloat16", "not known"

}  // namespace halfbyte::cli

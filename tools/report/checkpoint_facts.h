// What a checkpoint is, as a report's JSON has it: size, schemes, dtypes, the plan tensor by tensor, provenance.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

// {name, bytes, parameters, bits_per_weight, linear_bits, stored, original_dtypes, tensors, kept, rel_rmse, created_by,
// source}. `linear_bits`: of quantised weights alone; null where there are none. Errors: as files::open_checkpoint.
nlohmann::ordered_json checkpoint_facts(const std::string& path);

}  // namespace halfbyte::cli

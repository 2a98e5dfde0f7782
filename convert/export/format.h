// The formats of other programs that a quantised checkpoint can be written in, a row each: what they can say.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "convert/export/layout.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

struct ExportPlan;

struct ExportFormat {
  std::string_view name;   // as people choose it
  std::string_view title;  // for people
  std::span<const SchemeId> schemes;
  bool is_uniform;            // one number of bits and one group size for all packed tensors
  bool has_float16_scales;    // no others
  bool has_all_zero_points;   // else not of code 0, so that what is quantised anew has the middle one
  bool packs_heads;           // its readers look for a packed lm_head
  std::int64_t row_multiple;  // of out_features
  std::int64_t column_multiple;
  std::int64_t smallest_block;  // group sizes are powers of two from it on; 0: any
  const ExportLayout* layout;
  nlohmann::ordered_json (*config)(const files::Checkpoint& source, const ExportPlan& plan);
  // What its readers take otherwise than one might think, as notes of the plan. Null: nothing.
  void (*add_notes)(ExportPlan& plan);
  std::string_view config_file;  // besides config.json; empty: none
};

std::span<const ExportFormat> export_format_table();
// Errors: kInvalidArgument listing those that are known.
const ExportFormat& export_format(std::string_view name);

}  // namespace halfbyte::convert

#include "tools/verbs/conversion_json.h"

#include <variant>

#include <nlohmann/json.hpp>

#include "convert/calibrator.h"

namespace halfbyte::cli {

using nlohmann::ordered_json;

ordered_json calibration_json(const convert::QuantizeOptions& options) {
  return options.calibrator ? ordered_json(options.calibrator->record()) : ordered_json(nullptr);
}

ordered_json mix_json(const convert::Mix& mix) {
  ordered_json rows = ordered_json::array();
  for (const convert::MixRow& row : mix.rows) {
    rows.push_back({{"stored_as", row.stored_as},
                    {"tensors", row.tensors},
                    {"weights", row.weights},
                    {"bytes", row.bytes},
                    {"predicted_kl", row.loss},
                    {"bits_of_all", row.bits_of_all},
                    {"predicted_kl_of_all", row.loss_of_all}});
  }
  ordered_json out = {{"target_bpw", nullptr},          {"target_size", nullptr},
                      {"weights", mix.weights},         {"bytes", mix.bytes},
                      {"bits_per_weight", mix.bits()},  {"predicted_kl", mix.loss},
                      {"measured_on", said(mix.basis)}, {"rows", std::move(rows)}};
  if (mix.target_bpw > 0) out["target_bpw"] = mix.target_bpw;
  if (mix.target_size > 0) out["target_size"] = mix.target_size;
  return out;
}

ordered_json conversion_json(const std::string& source, const std::string& destination,
                             const convert::Conversion& conversion, const convert::QuantizeSummary& summary,
                             const Spelling& spelling) {
  // Of codes that were kept there is no error: the original is not here.
  const bool has_error = std::holds_alternative<convert::Quantization>(conversion.work) && !summary.was_complete;
  ordered_json out = {
      {"source", source},
      {"destination", destination},
      {"source_bytes", summary.source_bytes},
      {"result_bytes", summary.result_bytes},
      {"quantized_tensors", summary.quantized_tensors},
      {"kept_tensors", summary.kept_tensors},
      {"resumed_bytes", summary.resumed_bytes},
      {"was_complete", summary.was_complete},
      {"is_whole", summary.is_whole},
      {"parts_left", summary.parts_left},
      {"rel_rmse", has_error ? ordered_json(summary.rel_rmse) : ordered_json(nullptr)},
      {"seconds", summary.seconds},
      {"calibration", calibration_json(conversion.options)},
      {"advice", summary.advice.empty() ? ordered_json(nullptr) : ordered_json(summary.advice.str(spelling))},
      {"notes", said(summary.notes, spelling)},
      {"warnings", said(summary.warnings, spelling)}};
  if (conversion.options.mix) out["budget"] = mix_json(*conversion.options.mix);
  return out;
}

}  // namespace halfbyte::cli

#include "tools/verbs/quantize_report.h"

#include <nlohmann/json.hpp>

#include "convert/calibrator.h"
#include "tools/cli/errors.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/verb.h"
#include "tools/report/checkpoint_facts.h"
#include "tools/report/report.h"
#include "tools/verbs/plan_output.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

ordered_json provenance_of(const convert::Conversion& conversion, const std::string& source,
                           const std::string& destination) {
  ordered_json out = {{"checkpoint", destination}, {"original", source}};
  out["codes chosen by"] =
      conversion.options.calibrator ? calibration_words(conversion.options.calibrator->record()) : "the weights alone";
  if (conversion.options.mix) out["target"] = mix_line(*conversion.options.mix);
  out["converted by"] = "halfbyte " + std::string(version());
  out["on"] = machine().cpu;
  return out;
}

}  // namespace

void check_report_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_directory(folder, ignored))
    throw UsageError("--report " + printable(folder.string()) + ": is there and no folder");
}

void report_conversion(const std::filesystem::path& folder, const convert::Conversion& conversion,
                       const std::string& source, const std::string& destination) {
  ordered_json original = checkpoint_facts(source);
  original.erase("tensors");
  write_report(folder, {{"checkpoint", checkpoint_facts(destination)},
                        {"original", original},
                        {"evaluation", nullptr},
                        {"compared", ordered_json::array()},
                        {"provenance", provenance_of(conversion, source, destination)}});
}

}  // namespace halfbyte::cli

#include "tools/model/evaluate_report.h"

#include <nlohmann/json.hpp>

#include "loader/files/hash.h"
#include "tools/cli/platform.h"
#include "tools/cli/verb.h"
#include "tools/model/evaluate_output.h"
#include "tools/report/checkpoint_facts.h"
#include "tools/report/report.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

ordered_json provenance_of(const EvaluationRequest& request, const EvaluatedCheckpoint& evaluated,
                           const std::string& text_file) {
  const bool is_exact = request.loading.dtype.name() == exact_loading().dtype.name();
  return {{"checkpoint", evaluated.path},
          {"original", evaluated.result.original},
          {"text",
           text_file + ", " + std::to_string(request.text.size()) + " bytes, XXH3 " + files::hash_hex(request.text)},
          {"windows", std::to_string(evaluated.result.accuracy.windows) + " of " +
                          std::to_string(evaluated.result.context) + " tokens" +
                          (request.kind == WindowKind::kLlamaCpp ? ", as llama-perplexity's" : "")},
          {"arithmetic", request.loading.dtype.name() + (is_exact ? ", from dequantised weights" : "")},
          {"measured by", "halfbyte " + std::string(version())},
          {"on", machine().cpu}};
}

}  // namespace

void report_evaluation(const std::filesystem::path& folder, const EvaluationRequest& request,
                       const EvaluatedCheckpoint& evaluated, const std::vector<EvaluatedCheckpoint>& compared,
                       const std::string& text_file) {
  ordered_json others = ordered_json::array();
  for (const EvaluatedCheckpoint& other : compared) {
    ordered_json facts = checkpoint_facts(other.path);
    facts.erase("tensors");
    others.push_back({{"checkpoint", facts}, {"evaluation", json_of(other.result)}});
  }
  ordered_json original;
  if (!request.original.empty()) {
    original = checkpoint_facts(request.original.string());
    original.erase("tensors");
  }
  write_report(folder, {{"checkpoint", checkpoint_facts(evaluated.path)},
                        {"original", original},
                        {"evaluation", json_of(evaluated.result)},
                        {"compared", others},
                        {"provenance", provenance_of(request, evaluated, text_file)}});
}

}  // namespace halfbyte::cli

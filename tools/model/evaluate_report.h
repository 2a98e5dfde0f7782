// The report of an evaluation: gathers its data and writes it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/evaluate_checkpoint.h>

namespace halfbyte::cli {

struct EvaluatedCheckpoint {
  std::string path;
  Evaluation result;
};

// Writes DIR/report.html and DIR/report.json; `compared` may be empty. Errors: as write_report().
void report_evaluation(const std::filesystem::path& folder, const EvaluationRequest& request,
                       const EvaluatedCheckpoint& evaluated, const std::vector<EvaluatedCheckpoint>& compared,
                       const std::string& text_file);

}  // namespace halfbyte::cli

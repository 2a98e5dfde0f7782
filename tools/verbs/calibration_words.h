// What `quantize` is told of calibration. halfbyte-model does what it says; `halfbyte` hands over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <halfbyte/calibrate.h>

#include "tools/cli/option_parser.h"
#include "tools/cli/verb.h"

namespace halfbyte::cli {

// In the place of a file: the text that ships with halfbyte.
inline constexpr const char* kBuiltinText = "builtin";

// Smallest and largest.
struct WholeRange {
  std::int64_t first, last;
};
inline constexpr WholeRange kCalibrationTokens{1, 1'000'000'000};
inline constexpr WholeRange kCalibrationContext{2, 1'000'000};

struct CalibrationWords {
  std::string text;  // empty: none
  std::int64_t tokens = convert::kDefaultCalibrationTokens;
  std::int64_t context = convert::kDefaultCalibrationContext;
  std::string method = convert::kDefaultCalibrationMethod;
  std::optional<std::uint64_t> memory_limit = {};  // what was said of the whole program
};

// And of a target of bits or bytes.
struct BudgetWords {
  double bits = 0;   // a weight; 0: none
  std::string size;  // empty: none

  bool is_there() const noexcept { return bits > 0 || !size.empty(); }
};

void declare_budget(OptionParser& parser, BudgetWords& words);

void declare_calibration(OptionParser& parser, CalibrationWords& words);

// For the checkpoint at `source`, on `threads` threads (0: one a core). `progress`: of calibration.
using MakeCalibrator =
    std::shared_ptr<convert::Calibrator> (*)(const CalibrationWords& words, const std::string& source, int threads,
                                             std::function<void(std::uint64_t done, std::uint64_t total)> progress);

// Of the text that `words` name, or of what the model says by itself where they name none.
using MakeSensitivity =
    std::shared_ptr<convert::Sensitivity> (*)(const CalibrationWords& words, const std::string& source, int threads,
                                              std::function<void(std::uint64_t done, std::uint64_t total)> progress);
// What needs a model to be run.
struct ModelWork {
  MakeCalibrator calibrator;
  MakeSensitivity sensitivity;
};

// `work` is null where no model can be run: then `common.run_with_model` is what does it.
Action prepare_quantize_with(OptionParser& parser, const CommonOptions& common, const ModelWork* work);

}  // namespace halfbyte::cli

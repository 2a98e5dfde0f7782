#include "tools/model/calibration_work.h"

#include <utility>

#include <halfbyte/budget.h>

#include "loader/thread_count.h"

namespace halfbyte::cli {
namespace {

convert::CalibrationTokens read(const CalibrationWords& words, const std::string& source, std::int64_t tokens) {
  const convert::CalibrationTextOptions text{.tokens = tokens, .context = words.context};
  return words.text == kBuiltinText ? convert::read_builtin_calibration(source, text)
                                    : convert::read_calibration_text(words.text, source, text);
}

std::shared_ptr<convert::Calibrator> make(const CalibrationWords& words, const std::string& source, int threads,
                                          std::function<void(std::uint64_t done, std::uint64_t total)> progress) {
  if (threads > 0) set_thread_count(threads);
  convert::CalibrateOptions options;
  options.method = words.method;
  options.memory_limit = words.memory_limit;
  options.progress = std::move(progress);
  return convert::make_calibrator(read(words, source, words.tokens), options);
}

// Tokens of a text beyond those that codes are chosen by, of which some are measured on.
constexpr std::int64_t kMeasuredFrom = std::int64_t{1} << 20;

std::shared_ptr<convert::Sensitivity> make_sensitivity(
    const CalibrationWords& words, const std::string& source, int threads,
    std::function<void(std::uint64_t done, std::uint64_t total)> progress) {
  if (threads > 0) set_thread_count(threads);
  convert::SensitivityOptions options;
  options.progress = std::move(progress);
  if (words.text.empty()) {
    options.tokens_name = "what the model says by itself: rough";
    return convert::make_sensitivity([source] { return convert::own_tokens(source); }, options);
  }
  options.method = words.method;
  options.chosen_by = words.tokens;
  return convert::make_sensitivity([words, source] { return read(words, source, words.tokens + kMeasuredFrom); },
                                   options);
}

}  // namespace

constexpr ModelWork kModelWork{.calibrator = make, .sensitivity = make_sensitivity};

}  // namespace halfbyte::cli

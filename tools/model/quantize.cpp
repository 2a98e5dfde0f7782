// halfbyte quantize SRC DST --calibrate FILE
#include <utility>

#include <halfbyte/calibrate.h>

#include "loader/thread_count.h"
#include "tools/cli/log.h"
#include "tools/cli/spelling.h"
#include "tools/model/model_verbs.h"
#include "tools/verbs/calibration_words.h"

namespace halfbyte::cli {
namespace {

std::shared_ptr<convert::Calibrator> make(const CalibrationWords& words, const std::string& source, int threads,
                                          std::function<void(std::uint64_t done, std::uint64_t total)> progress) {
  if (threads > 0) set_thread_count(threads);
  convert::CalibrateOptions options;
  options.method = words.method;
  options.memory_limit = words.memory_limit;
  options.progress = std::move(progress);
  const convert::CalibrationTextOptions text{.tokens = words.tokens, .context = words.context};
  return convert::make_calibrator(words.text == kBuiltinText ? convert::read_builtin_calibration(source, text)
                                                             : convert::read_calibration_text(words.text, source, text),
                                  options);
}

}  // namespace

Action prepare_quantize(OptionParser& parser, const CommonOptions& common) {
  return prepare_quantize_with(parser, common, make);
}

}  // namespace halfbyte::cli

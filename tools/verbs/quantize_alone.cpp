// halfbyte quantize SRC DST, where no model can be run.
#include "tools/verbs/calibration_words.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {

Action prepare_quantize(OptionParser& parser, const CommonOptions& common) {
  return prepare_quantize_with(parser, common, nullptr);
}

}  // namespace halfbyte::cli

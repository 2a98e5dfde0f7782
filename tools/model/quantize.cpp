// halfbyte quantize SRC DST --calibrate FILE
#include "tools/model/calibration_work.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {

Action prepare_quantize(OptionParser& parser, const CommonOptions& common) {
  return prepare_quantize_with(parser, common, &kModelWork);
}

}  // namespace halfbyte::cli

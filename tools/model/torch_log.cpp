#include "tools/model/torch_log.h"

#include <cstdlib>

#include <c10/util/Logging.h>

namespace halfbyte::cli {

void silence_torch() {
  if (!std::getenv("TORCH_CPP_LOG_LEVEL"))  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

}  // namespace halfbyte::cli

// Calibration and budgets, which run a model: for `halfbyte-model quantize` and for Python's.
#pragma once

#include "tools/verbs/calibration_words.h"

namespace halfbyte::cli {

extern const ModelWork kModelWork;

}  // namespace halfbyte::cli

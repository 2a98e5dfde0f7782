// At what rate a step learns.
#pragma once

#include <cstdint>

#include <halfbyte/finetune.h>

namespace halfbyte::convert {

// Of step `step`, from 0 on, of `steps`.
double rate_of(const FinetuneOptions& options, std::int64_t step, std::int64_t steps);

}  // namespace halfbyte::convert

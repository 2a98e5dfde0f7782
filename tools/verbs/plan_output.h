// What `quantize --dry-run` prints.
#pragma once

#include "convert/plan.h"

namespace halfbyte::cli {

void print_plan(const files::Checkpoint& source, const convert::Plan& plan, bool is_json);

}  // namespace halfbyte::cli

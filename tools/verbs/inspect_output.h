// What `inspect` prints.
#pragma once

#include "tools/verbs/inspection.h"

namespace halfbyte::cli {

void print_inspection(const files::Checkpoint& checkpoint, const Inspection& inspection, bool list_tensors);
void print_inspection_json(const files::Checkpoint& checkpoint, const Inspection& inspection, bool list_tensors);

}  // namespace halfbyte::cli

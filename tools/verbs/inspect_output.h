// What `inspect` prints.
#pragma once

#include <string>

#include "loader/load_cost.h"
#include "tools/verbs/inspection.h"

namespace halfbyte::cli {

void print_inspection(const std::string& path, const files::Checkpoint& checkpoint, const Inspection& inspection,
                      bool list_tensors);
void print_inspection_json(const std::string& path, const files::Checkpoint& checkpoint, const Inspection& inspection,
                           bool list_tensors);

// What `inspect --policy` prints.
void print_load_cost(const files::Checkpoint& checkpoint, const files::LoadCost& cost);
void print_load_cost_json(const files::Checkpoint& checkpoint, const files::LoadCost& cost);

}  // namespace halfbyte::cli

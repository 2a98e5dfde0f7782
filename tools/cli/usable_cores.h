// How many threads are worth having where nobody said.
#pragma once

#include <filesystem>

namespace halfbyte::cli {

// Physical cores among the CPUs that this process may run on, at most as many as the quotas of its control groups and
// those above them allow (a share of a core counts as one). At least 1. `root`: where /proc and /sys are.
int usable_cores(const std::filesystem::path& root = "/");

// Unless OMP_NUM_THREADS is set: threads by default, of this program and of the one it becomes.
void use_usable_cores();

}  // namespace halfbyte::cli

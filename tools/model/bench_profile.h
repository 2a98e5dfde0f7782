// What `bench --profile` shows: where the time of prefill and of decode goes.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/model/timed_runs.h"

namespace halfbyte::cli {

// The prefill whose time is in the middle, and the decode. There is one run at least.
RunProfile median_of(const std::vector<RunProfile>& runs);

// `memory`: its speed when nothing but read, in bytes a second.
nlohmann::ordered_json json_of(const RunProfile& profile, double memory);
void print(const RunProfile& profile, double memory);

}  // namespace halfbyte::cli

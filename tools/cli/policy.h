// Dtype policies on the command line, for every verb that loads a model or says what loading will cost.
#pragma once

#include <string>
#include <vector>

#include <halfbyte/load_options.h>

#include "tools/cli/parse.h"

namespace halfbyte::cli {

std::vector<std::string> policy_names();

// Any name that DtypePolicy::parse takes. For Option::check().
Check dtype_policy();
// One of policy_names(), also as "float16" and "amp". For options whose help lists them.
Check policy_word();
// "*down_proj*=float32".
Check policy_assignment();

// Of words that policy_assignment() let through, in their order.
std::vector<DtypeOverride> parse_overrides(const std::vector<std::string>& words);

}  // namespace halfbyte::cli

// How every verb that runs a model loads it, as its options say (tools/text/declare_model.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

#include "tools/cli/verb.h"
#include "tools/text/declare_model.h"

namespace halfbyte::cli {

// Passes of this thread have them while the result lives; null: there are none. Errors: as convert::Adapters.
std::shared_ptr<const void> beside(const Model& model, const std::vector<std::string>& adapters);

// Sets the threads, loads the model, and logs what the load report says with -v.
Model load_model(const ModelWords& words, const CommonOptions& common);

// What a rank after the first does of a verb that rank 0 leads: loads the model, and follows. The first Ctrl-C or
// SIGTERM is rank 0's to obey. Errors: as load_model() and follow().
ExitStatus follow_first_rank(const ModelWords& words, const CommonOptions& common);

}  // namespace halfbyte::cli

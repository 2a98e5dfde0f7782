// What earlier runs of a conversion left in NAME.partial.
#pragma once

#include <optional>

#include "convert/conversion.h"
#include "convert/output/destination.h"
#include "convert/output/journal.h"

namespace halfbyte::convert {

// What there is to go on with; else NAME.partial is emptied. Errors: kInvalidArgument when it is the work of another
// conversion and the options go on, or what `finish` wants is not there; kAlreadyExists when it could be gone on with
// and nobody said what is to be done.
std::optional<JournalContents> find_unfinished(Destination& destination, const Quantization& work,
                                               const QuantizeOptions& options, const nlohmann::json& identity);

// The same for one part of several, which deletes nothing of others. Errors: kInvalidArgument when the work is that of
// another conversion.
std::optional<JournalContents> find_shared(Destination& destination, const Quantization& work,
                                           const nlohmann::json& identity);

}  // namespace halfbyte::convert

// What decides a result's bytes: the source, the options, the program. For the manifest, the journal, and the check
// that two conversions are the same.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/output/result_layout.h"

namespace halfbyte::convert {

// "halfbyte 0.1.0"
std::string program_and_version();

// Whether an option says how to quantise.
bool chooses_codes(const QuantizeOptions& options) noexcept;
// Whether a source that is quantised already may be quantised again.
bool may_requantize(const QuantizeOptions& options) noexcept;

// The options that decide bytes, for people and for a later run: the manifest's "conversion". Without threads and
// memory, which decide nothing.
nlohmann::json conversion_record(const QuantizeOptions& options);

// One object a conversion; equal objects give equal bytes, if the source's tensors are equal too.
nlohmann::json identity_of(const files::Checkpoint& source, const ResultLayout& layout, const QuantizeOptions& options);

// Of two identities: "scheme is \"sym_int8\" there and \"sym_int4\" here". Nothing when they are equal.
std::optional<std::string> difference(const nlohmann::json& there, const nlohmann::json& here);

// Whether DESTINATION holds, whole, what this conversion would write; reads the source to know. Nothing when it does,
// else what differs. Errors: as of reading the source; kInterrupted.
std::optional<Text> difference_from_complete(const files::fs::path& destination, const files::Checkpoint& source,
                                             const ResultLayout& layout, const QuantizeOptions& options);

}  // namespace halfbyte::convert

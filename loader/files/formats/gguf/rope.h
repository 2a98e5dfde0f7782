// Rotary embedding's part of a GGUF model's configuration.
#pragma once

#include "loader/files/formats/gguf/config.h"

namespace halfbyte::files {

// Adds "rope_theta", "rope_scaling" and what goes with them. `prefix`: "llama."
void add_gguf_rope(const GgufParts& parts, const std::string& prefix, nlohmann::ordered_json& config,
                   std::vector<std::string>& notes);

}  // namespace halfbyte::files

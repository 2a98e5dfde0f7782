// config.json of a test, parsed by its family's row, or refused.
#pragma once

#include <string>

#include <halfbyte/error.h>

#include "models/architectures/architecture.h"

namespace halfbyte::models {

inline ModelConfig parse(const nlohmann::json& config) { return find_architecture(config)->parse(config); }

// What the refusal says.
inline std::string error_of(const nlohmann::json& config) {
  try {
    parse(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace halfbyte::models

// The page about a training.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

// `done`: what finetune prints as JSON; `provenance`: {what: text}.
std::string training_page(const nlohmann::ordered_json& done, const nlohmann::ordered_json& provenance);

}  // namespace halfbyte::cli

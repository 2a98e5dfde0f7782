// Configurations of published models, for checkpoints of their shapes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "models/architectures/architecture.h"

namespace halfbyte::convert {

std::span<const std::string_view> synth_shapes() noexcept;

// The config.json of the text model that `like` names, of its first `layers` layers (0: all).
// Errors: kInvalidArgument naming what there is.
nlohmann::ordered_json synth_config(const std::string& like, std::int64_t layers);

// How experts lie in files: as the family's checkpoints are published, a matrix each, or stacked in one tensor.
enum class SynthExperts : std::uint8_t { kUsual, kSeparate, kStacked };

// Gives a configuration of `like` the family's names under which experts lie so. Errors: kInvalidArgument.
void choose_naming(const models::Architecture& family, const std::string& like, SynthExperts experts,
                   models::ModelConfig& config);

}  // namespace halfbyte::convert

// Adapters in peft's files. Source: peft, utils/save_and_load.py and tuners/lora/config.py.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <halfbyte/lora.h>
#include <halfbyte/weighted_adapter.h>

#include "convert/output/destination.h"

namespace halfbyte::convert {

// adapter_config.json and adapter_model.safetensors. `base`: what the adapters are for, as the file will name it.
// Errors: kIo, kNoResources.
void write_peft_adapter(const Lora& lora, const std::string& base, const Destination& destination);

// Such directories' adapters, beside the Linears of `model`, without gradients and without dropout; what they add is
// added up, each times its weight. The options are those of the first. Errors: as open_peft_adapter; kInvalidArgument
// where one is for another model.
std::unique_ptr<Lora> read_peft_adapters(const models::CausalLM& model, std::span<const WeightedAdapter> adapters);
// Of one, to be trained further: with gradients, and the dropout and seed of `how`.
std::unique_ptr<Lora> read_peft_adapter(const models::CausalLM& model, const std::filesystem::path& path,
                                        const LoraOptions& how = {});

}  // namespace halfbyte::convert

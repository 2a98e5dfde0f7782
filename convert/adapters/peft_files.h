// Adapters in peft's files. Source: peft, utils/save_and_load.py and tuners/lora/config.py.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <halfbyte/lora.h>

namespace halfbyte::convert {

// adapter_config.json and adapter_model.safetensors, in a directory that appears when both are whole. `base`: what the
// adapters are for, as the file will name it. Errors: kAlreadyExists, kIo, kNoResources.
void write_peft_adapter(const Lora& lora, const std::string& base, const std::filesystem::path& destination,
                        bool overwrite);

// Such a directory's, beside the Linears of `model`, without dropout. Errors: kNotFound, kCorrupt; kUnsupported for a
// kind of adapter that this is not; kInvalidArgument where it is for another model.
std::unique_ptr<Lora> read_peft_adapter(const models::CausalLM& model, const std::filesystem::path& path);

}  // namespace halfbyte::convert

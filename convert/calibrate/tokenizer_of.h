// The tokenizer of a checkpoint, for what is to be read with it.
#pragma once

#include <filesystem>
#include <memory>

#include "loader/files/tokenizer_directory.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert::calibrate {

// Errors: kInvalidArgument when it has none.
std::unique_ptr<models::Tokenizer> tokenizer_of(const std::filesystem::path& checkpoint);

}  // namespace halfbyte::convert::calibrate

// What a family's configuration may say and llama.cpp's architecture cannot. For export.cpp.
#pragma once

#include "loader/files/formats/gguf/names.h"
#include "models/architectures/model_config.h"

namespace halfbyte::convert {

// Errors: kUnsupported naming what llama.cpp would compute otherwise.
void check_gguf_limits(const models::ModelConfig& model, const files::GgufFamily& family);

}  // namespace halfbyte::convert

// A file of texts: its bytes, or the JSON values that it holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert::calibrate {

// Errors: kNotFound, kIo; kInvalidArgument for one of more than 1 GiB.
std::string read_text_file(const std::filesystem::path& path);

enum class TextShape { kPlain, kJsonLines, kJsonList };

// By the file's name: .jsonl, .json, anything else.
TextShape shape_of(const std::filesystem::path& path);

// Takes a value and where it stands ("FILE: line 3"); false: no more are wanted.
using TakeValue = std::function<bool(const nlohmann::ordered_json& value, const std::string& where)>;

// The values of a file that is not plain; blank lines are none. Errors: kCorrupt, naming the line.
void each_json_value(std::string_view text, const std::filesystem::path& path, TextShape shape, const TakeValue& take);

// Null: the value is no object, or has none of that name.
const nlohmann::ordered_json* member(const nlohmann::ordered_json& value, const char* name);

// A list of token ids, one at least, each below `vocab_size`. Errors: kCorrupt, beginning with `where`.
models::TokenIds token_ids_of(const nlohmann::ordered_json& values, std::int64_t vocab_size, const std::string& where);

}  // namespace halfbyte::convert::calibrate

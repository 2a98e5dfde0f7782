// Calibration texts as JSON: token ids, conversations, or texts, one a line or in one list.
#pragma once

#include <filesystem>
#include <string_view>

#include "convert/calibrate/text_values.h"
#include "convert/calibrate/windows.h"

namespace halfbyte::convert::calibrate {

struct JsonTextOptions {
  std::filesystem::path checkpoint;  // whose tokenizer and chat template read what is no ids
  std::int64_t vocab_size;           // ids are smaller
  WindowOptions windows;
};

// Reads as many as are wanted. Errors: kCorrupt, naming the line, for what is none of them; as of reading the tokenizer
// and its template.
Windows read_json_texts(std::string_view text, const std::filesystem::path& path, const JsonTextOptions& options);

}  // namespace halfbyte::convert::calibrate

// What `export` does, whoever asks for it.
#pragma once

#include <string>
#include <vector>

#include "tools/verbs/caller.h"

namespace halfbyte::cli {

struct ExportWords {
  std::string checkpoint;
  std::string destination;
  std::string format;                // one of export_formats()
  std::string type = {};             // empty: as they are stored
  std::string assume_original = {};  // empty: nothing is assumed
  bool requantize = false;
  bool overwrite = false;
};

std::vector<std::string> export_formats();
std::vector<std::string> gguf_types();  // that `type` may be

// Writes the destination. Errors: kInvalidArgument also for options that the format has not; as the library's exports.
Outcome export_as(const ExportWords& words, const Caller& caller);

}  // namespace halfbyte::cli

// A checkpoint and how it is to be loaded, in words: those of a command line, or of Python.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

#include "loader/files/tokenizer_directory.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::cli {

struct ModelWords {
  std::string checkpoint;
  std::string dtype = "amp:bfloat16";
  std::vector<std::string> keep_float32;
  std::vector<std::string> dtype_for;
  bool verify = false;
  int threads = 0;
  std::string device = "cpu";
  std::string compute = "auto";
  std::string key_values = "auto";
};

std::vector<std::string> compute_words();

// What the words come to; the threads are the process's.
LoadOptions load_options(const ModelWords& words);

// The checkpoint's tokenizer, or null.
std::unique_ptr<models::Tokenizer> tokenizer_of(const std::string& checkpoint,
                                                files::WeightsAre weights = files::WeightsAre::kCheckedHere);

}  // namespace halfbyte::cli

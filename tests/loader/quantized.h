// tiny-llama in 4 bits, made once for all tests of a program.
#pragma once

#include <filesystem>

#include <halfbyte/convert.h>

#include "tests/places.h"

namespace halfbyte::tests {

inline const std::filesystem::path& quantized_tiny_llama() {
  static const Scratch scratch;
  static const std::filesystem::path path = [] {
    convert::quantize(data("tiny-llama"), scratch / "tiny-4bit");
    return scratch / "tiny-4bit";
  }();
  return path;
}

}  // namespace halfbyte::tests

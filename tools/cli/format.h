// Numbers as people read them: "2.20 GB", "1.10 G", "4.1 s". For every line that the programs print.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace halfbyte::cli {

std::string human_bytes(std::uint64_t bytes);  // decimal units, three digits: "0.64 GB", "17.2 MB", "393 kB", "96 B"
std::string human_count(std::uint64_t count);  // "1.10 G", "1.97 M", "192"
std::string human_seconds(double seconds);     // "0.21 s", "4.1 s", "75 s", "12 min 05 s"
std::string human_shape(std::span<const std::int64_t> shape);  // "[1024, 192]", "[]"
std::string fixed(double value, int digits);                   // "0.089"
// "1 tensor", "3 tensors".
std::string counted(std::int64_t count, const std::string& noun);

}  // namespace halfbyte::cli

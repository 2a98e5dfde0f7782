// Writes down what changes files, in order and with its data, for power_test.py to play again in part.
//
// HALFBYTE_RECORD=FILE: a line for each successful change, of fields between tabs, paths absolute, data in hexadecimal:
//   create PATH, truncate PATH SIZE, write PATH OFFSET DATA, sync PATH, mkdir PATH, remove PATH, rename FROM TO,
//   exchange FROM TO, link FROM TO
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace preload {

bool is_recording();
void record(const char* what, const std::string& path, const std::string& rest = {});
void record_write(const std::string& path, std::uint64_t offset, std::span<const unsigned char> data);

}  // namespace preload

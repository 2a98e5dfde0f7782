// What the values of options must be; a wrong one is answered with the value, the wanted ones and the nearest.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/option_parser.h"

namespace halfbyte::cli {

// For DeclaredOption::check().
Check one_of(std::vector<std::string> names);
Check whole_number(std::int64_t smallest, std::int64_t largest);
Check number_between(double smallest, double largest);
// "256MiB", "1GB", "300 MB", "65536": a whole number from 1 on, in bytes or with a unit.
Check byte_size();

// What byte_size() lets through. Units: bytes.
std::uint64_t parse_bytes(const std::string& text);

// "2/4": the second of four.
Check part_of_all();
// What part_of_all() lets through: {2, 4}.
std::pair<int, int> parse_part(const std::string& text);

}  // namespace halfbyte::cli

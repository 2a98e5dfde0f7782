// The text that ships with the program: convert/calibrate/builtin.txt, made into a source by the build.
#pragma once

#include <string_view>

namespace halfbyte::convert::calibrate {

std::string_view builtin_text() noexcept;

}  // namespace halfbyte::convert::calibrate

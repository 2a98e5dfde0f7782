// The program's log: lines on stderr beside the one that an error gets. spdlog stays behind log.cpp, because LibTorch
// brings a fmt of its own that Debian's spdlog does not compile with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::cli {

enum class LogLevel { kQuiet, kNormal, kVerbose };  // errors only; warnings too; everything

void set_log_level(LogLevel level);
void log_warning(std::string_view message);
void log_always(const std::vector<std::string>& messages);  // warnings that no option spares anybody
void log_info(std::string_view message);                    // shown with -v

}  // namespace halfbyte::cli

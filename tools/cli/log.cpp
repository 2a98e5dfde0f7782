#include "tools/cli/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "tools/cli/errors.h"

namespace halfbyte::cli {
namespace {

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("halfbyte");
    made->set_pattern("halfbyte: %^%l%$: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn, spdlog::level::info};
  logger().set_level(kLevels[static_cast<int>(level)]);
}

void log_warning(std::string_view message) { logger().warn("{}", printable(message)); }

void log_always(const std::vector<std::string>& messages) {
  const auto level = logger().level();
  logger().set_level(spdlog::level::warn);
  for (const std::string& message : messages) log_warning(message);
  logger().set_level(level);
}

void log_info(std::string_view message) { logger().info("{}", printable(message)); }

}  // namespace halfbyte::cli

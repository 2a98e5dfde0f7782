// What Linux says of the machine, in /proc and /etc.
#include <sched.h>
#include <sys/utsname.h>

#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "tools/cli/platform.h"

namespace halfbyte::cli {
namespace {

// In the order in which they are shown.
constexpr auto kFeatures = std::to_array<std::string_view>(
    {"avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16",
     "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"});

// The value of the first line "KEY<spaces>SEPARATOR value" of a file.
std::string value_in(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator, key.size());
    if (at == std::string::npos || line.find_first_not_of(" \t", key.size()) != at) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const std::size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
  }
  return "";
}

std::string system_name() {
  const std::string distribution = value_in("/etc/os-release", "PRETTY_NAME", '=');
  utsname kernel{};
  if (uname(&kernel) != 0) return distribution;
  const std::string text = std::string(kernel.sysname) + " " + kernel.release + " " + kernel.machine;
  return distribution.empty() ? text : distribution + ", " + text;
}

std::vector<std::string> features() {
  std::istringstream words(value_in("/proc/cpuinfo", "flags", ':'));
  std::set<std::string, std::less<>> flags;
  for (std::string word; words >> word;) flags.insert(word);
  std::vector<std::string> out;
  for (const std::string_view feature : kFeatures) {
    if (flags.contains(feature)) out.emplace_back(feature);
  }
  return out;
}

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::uint64_t available_bytes() {
  std::istringstream text(value_in("/proc/meminfo", "MemAvailable", ':'));
  std::uint64_t kilobytes = 0;
  text >> kilobytes;
  return kilobytes * 1024;
}

}  // namespace

Machine machine() {
  return {system_name(), value_in("/proc/cpuinfo", "model name", ':'), features(), cores(), available_bytes()};
}

}  // namespace halfbyte::cli

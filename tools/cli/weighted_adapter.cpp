#include "tools/cli/weighted_adapter.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

namespace halfbyte::cli {
namespace {

std::optional<double> number(std::string_view text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(out)) return std::nullopt;
  return out;
}

}  // namespace

DeclaredOption declare_adapters(OptionParser& parser, std::vector<std::string>& words, const std::string& help) {
  return parser.add_option("--adapter", words, help).type_name("DIR[:WEIGHT]").repeatable();
}

std::pair<std::string, double> weighted_adapter(const std::string& word) {
  const std::size_t colon = word.rfind(':');
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::exists(word, ignored)) return {word, 1};
  const auto weight = number(std::string_view(word).substr(colon + 1));
  if (!weight) return {word, 1};
  return {word.substr(0, colon), *weight};
}

}  // namespace halfbyte::cli

#include "tools/server/api/keys.h"

namespace halfbyte::server {

bool is_same_key(std::string_view a, std::string_view b) noexcept {
  volatile std::size_t difference = a.size() ^ b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = difference | static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

bool is_allowed(const std::string& authorization, const std::vector<std::string>& keys) noexcept {
  if (keys.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view given = std::string_view(authorization).starts_with(kScheme)
                                     ? std::string_view(authorization).substr(kScheme.size())
                                     : std::string_view();
  bool is_one = false;
  for (const std::string& key : keys) is_one |= is_same_key(given, key);
  return is_one;
}

bool is_this_machine(std::string_view header, std::string_view listening) noexcept {
  const std::string_view host = header.substr(0, header.starts_with('[') ? header.find(']') + 1 : header.find(':'));
  const bool is_number = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || (is_number && host.starts_with("127.")) || host == "[::1]" || host == listening;
}

}  // namespace halfbyte::server

// Whether a request may be served.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::server {

// Takes as long for keys that begin alike as for others.
bool is_same_key(std::string_view a, std::string_view b) noexcept;

// `authorization`: "Bearer KEY". No keys: everybody may.
bool is_allowed(const std::string& authorization, const std::vector<std::string>& keys) noexcept;

// Whether a Host header ("localhost:8080") names this machine itself, or what the server was told to listen on.
bool is_this_machine(std::string_view header, std::string_view listening) noexcept;

}  // namespace halfbyte::server

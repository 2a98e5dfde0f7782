# page_text.h: the page as a C++ text. String literals have a limit, so that it comes in parts.
set(page ${CMAKE_CURRENT_SOURCE_DIR}/page)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page}/page.html ${page}/page.js)
file(READ ${page}/page.js script)
file(READ ${page}/page.html text)
string(REPLACE "@SCRIPT@" "${script}" text "${text}")
string(LENGTH "${text}" length)
set(literals "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 part)
  string(APPEND literals "    R\"_page_(${part})_page_\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/page/page_text.h @ONLY CONTENT "#pragma once

#include <string_view>

namespace halfbyte::server {

inline constexpr std::string_view kPageText =
@literals@    \"\";

}  // namespace halfbyte::server
")

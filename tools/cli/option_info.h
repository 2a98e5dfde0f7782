// What an option is, for those who describe a verb's options: --help, the manual page, completion of shells.
#pragma once

#include <string>
#include <vector>

namespace halfbyte::cli {

struct OptionInfo {
  std::vector<std::string> names;  // "-v", "--verbose"; of an argument without a dash its own: "SRC"
  std::string help;
  std::string value;                 // "PATTERN=SCHEME", "sym_int4|sym_int8"; empty: the option takes none
  std::vector<std::string> choices;  // when the value is one of some
  std::string default_value;
  bool is_positional = false;
  bool is_required = false;
  bool is_repeatable = false;
};

}  // namespace halfbyte::cli

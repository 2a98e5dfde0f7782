// Words of the command line that are parsed: sizes, numbers, policies, patterns, schemes.
#include <array>

#include <halfbyte/dtype_policy.h>
#include <halfbyte/scheme.h>

#include "loader/files/manifest.h"
#include "tests/fuzz/target.h"
#include "tools/cli/parse.h"

namespace halfbyte::fuzz {

// "WORD\nNAME": the word as a value of every kind, and as a pattern of the name.
void fuzz_options(std::string_view input) {
  const std::size_t line = std::min(input.find('\n'), input.size());
  std::string word(input.substr(0, line));
  const std::string_view name = input.substr(std::min(line + 1, input.size()));
  std::string size = word;
  if (cli::byte_size().problem_with(size).empty()) require(cli::parse_bytes(size) > 0, "a size is not 0");
  for (const cli::Check& check : {cli::whole_number(-5, 5'000'000'000), cli::number_between(0, 2),
                                  cli::one_of({"sym_int4", "asym_int4", "nf4", "amp:bfloat16"})}) {
    std::string value = word;
    static_cast<void>(check.problem_with(value));
  }
  files::matches_pattern(word, name);
  find_scheme(word);
  dtype_from_name(word);
  DtypePolicy::parse(word);
}

}  // namespace halfbyte::fuzz

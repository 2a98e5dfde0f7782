// What people type from habit of other programs (llama.cpp, transformers, ipex-llm, bitsandbytes), and what it is here.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace halfbyte::cli {

// Of an unknown option, value or verb: "; here it is '--max-gen-len'", else "; did you mean 'quantize'?", else nothing.
// `known`: what would have been right here: options and arguments of the verb, values of the option, verbs.
std::string hint(std::string_view typed, std::span<const std::string> known);

// Of a word that no argument is left for: "; a prompt is given with --prompt", or nothing. `known`: the verb's options.
std::string argument_hint(std::span<const std::string> known);

struct Habit {
  std::string_view words;      // with blanks between them; those without a dash in any case
  std::string_view here;       // the row counts where this is known
  std::string_view hint = {};  // how that is said, where "here it is 'HERE'" does not do
};

std::span<const Habit> habits() noexcept;  // of several rows that count, the first does

}  // namespace halfbyte::cli

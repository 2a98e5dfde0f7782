#include "tools/text/speculation_words.h"

#include "tools/cli/option_parser.h"
#include "tools/cli/parse.h"

namespace halfbyte::cli {

void declare_speculation(OptionParser& parser, SpeculationWords& words) {
  parser
      .add_option("--speculate", words.speculate,
                  "guess tokens and verify several at once: lookup: what followed the same tokens before; the text is "
                  "the same, sooner")
      .check(one_of({"none", "lookup"}))
      .show_default();
  parser.add_option("--draft", words.draft, "a smaller checkpoint with the same tokenizer that guesses tokens too")
      .type_name("CKPT");
}

std::string guesses_text(std::int64_t guessed, std::int64_t right) {
  if (guessed == 0) return "";
  return "; " + std::to_string(right) + " of " + std::to_string(guessed) + " guesses were right";
}

}  // namespace halfbyte::cli

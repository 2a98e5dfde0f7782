// halfbyte.1, in the man macros of troff.
#include <sstream>

#include "tools/cli/verb.h"
#include "tools/verbs/program_options.h"

namespace halfbyte::cli {
namespace {

// Text of a line: hyphens are what one copies, and no line is a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '|') {
      out += "|\\:";  // a line may end here
    } else {
      out += c;
    }
  }
  return out.starts_with(".") ? "\\&" + out : out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string option_text(const OptionInfo& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(option.is_positional ? italic(name) : bold(name));
  std::string out = ".TP\n" + joined(names, ", ");
  if (!option.is_positional && !option.value.empty()) out += " " + italic(option.value);
  out += "\n" + roff(option.help);
  if (option.is_positional && !option.choices.empty()) out += ": " + roff(joined(option.choices, ", "));
  if (!option.default_value.empty()) out += "; default: " + roff(option.default_value);
  return out + "\n";
}

std::string usage(const VerbHelp& verb) {
  std::string out = bold("halfbyte " + verb.name);
  for (const OptionInfo& option : verb.options) {
    if (option.is_positional) out += " " + italic(option.names.front());
  }
  return out + " [" + italic("options") + "]";
}

std::string examples(const std::string& text) {
  std::string out = ".PP\nExamples:\n.PP\n.nf\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out += roff(line) + "\n";
  return out + ".fi\n";
}

std::string verb_section(const VerbHelp& verb) {
  std::string out = ".SS " + roff(verb.name) + "\n" + usage(verb) + "\n.PP\n" + roff(verb.summary) + "\n";
  for (const OptionInfo& option : verb.options) out += option_text(option);
  return out + examples(verb.examples);
}

constexpr const char* kDescription = R"(.SH DESCRIPTION
\fBhalfbyte\fR makes 4\-bit copies of language\-model checkpoints, on an ordinary CPU and without holding the model in memory,
records what every tensor was before, and runs them.
A model is a directory as Hugging Face has it, or one file: .safetensors, .gguf, .bin, .pth.
Results go to standard output, everything else to standard error.
)";

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
0
done
.TP
1
failed: the operating system or the machine was in the way
.TP
2
wrong usage
.TP
3
the data is bad: corrupt, truncated, unsupported, NaN
.TP
4
out of disk or memory
.TP
130
interrupted
.SH ENVIRONMENT
.TP
\fBHALFBYTE_ISA\fR
kernels to use instead of the best this CPU runs: amx_bf16, avx512_bf16, avx512_vnni, avx512, avx2_vnni, avx2, ref
.TP
\fBHALFBYTE_ONEDNN\fR
path of the library libhalfbyte_onednn.so, or \fBoff\fR
.TP
\fBCOLUMNS\fR
width of help and tables, where it is not the terminal's
)";

}  // namespace

std::string man_page(std::span<const VerbHelp> verbs) {
  std::string out =
      ".\\\" Made by `halfbyte man`.\n.TH HALFBYTE 1 \"\" \"halfbyte " + std::string(version()) +
      "\" \"User Commands\"\n.ad l\n.SH NAME\nhalfbyte \\- LLM checkpoints in 4 bits, with a record of what "
      "every tensor was\n.SH SYNOPSIS\n";
  for (const VerbHelp& verb : verbs) out += usage(verb) + "\n.br\n";
  out += std::string(kDescription) + ".SH VERBS\n";
  for (const VerbHelp& verb : verbs) out += verb_section(verb);
  return out + kEnd;
}

}  // namespace halfbyte::cli

#include "tools/verbs/calibration_words.h"

#include <vector>

#include "tools/cli/parse.h"

namespace halfbyte::cli {

void declare_calibration(OptionParser& parser, CalibrationWords& words) {
  parser
      .add_option(
          "--calibrate", words.text,
          "choose codes by what the model's layers are given while it reads this: a text; token ids, chats or texts as "
          ".jsonl; or 'builtin'")
      .type_name("FILE");
  parser.add_option("--calibration-tokens", words.tokens, "of the text, at most")
      .check(whole_number(kCalibrationTokens.first, kCalibrationTokens.last))
      .needs("--calibrate")
      .show_default();
  parser.add_option("--calibration-ctx", words.context, "tokens of a sequence")
      .check(whole_number(kCalibrationContext.first, kCalibrationContext.last))
      .needs("--calibrate")
      .show_default();
  const std::vector<std::string> methods(std::begin(convert::kCalibrationMethods),
                                         std::end(convert::kCalibrationMethods));
  parser
      .add_option("--method", words.method,
                  "of calibration: scales alone (search); codes too (gptq); and each product making up for what "
                  "those before it lost (gptaq), which is what auto takes")
      .check(one_of(methods))
      .show_default();
}

void declare_budget(OptionParser& parser, BudgetWords& words) {
  parser
      .add_option("--target-bpw", words.bits,
                  "choose scheme and group size for each tensor: so many bits a weight, and as little loss as can be")
      .type_name("BITS")
      .check(number_between(0.5, 64));
  parser.add_option("--target-size", words.size, "the same for the size of all the result's tensors together")
      .type_name("SIZE")
      .check(byte_size())
      .excludes("--target-bpw");
}

}  // namespace halfbyte::cli

// halfbyte launch -n N -- VERB ...: one command by several processes of this machine.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/errors.h"
#include "tools/cli/parse.h"
#include "tools/cli/rank_processes.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

// Verbs whose model ranks run together.
constexpr std::string_view kShared[] = {"generate", "perplexity", "bench"};

bool reads_stdin(const std::string& word) {
  return word == "-" || word.ends_with("=-") || word.ends_with("/dev/stdin") ||
         word.find("/dev/fd/") != std::string::npos;
}

struct Words {
  int ranks = 2;
  int timeout = RankedCommand{}.timeout;
  std::vector<std::string> command;
};

void check_command(const std::vector<std::string>& command) {
  if (std::ranges::find(kShared, command.front()) != std::end(kShared)) {
    const auto word = std::ranges::find_if(command, reads_stdin);
    if (word == command.end()) return;
    throw UsageError("launch: ranks have no common input; put what '" + printable(*word) + "' would read into a file");
  }
  std::string all;
  for (const std::string_view each : kShared) all += (all.empty() ? "" : ", ") + std::string(each);
  throw UsageError("launch: '" + printable(command.front()) + "' is not run by several processes; these are: " + all);
}

}  // namespace

Action prepare_launch(OptionParser& parser, const CommonOptions&) {
  const auto words = std::make_shared<Words>();
  parser.add_option("-n,--ranks", words->ranks, "how many processes, which share this machine's cores")
      .check(whole_number(2, 256))
      .show_default();
  parser.add_option("--timeout", words->timeout, "seconds until a process that gives no sign to the others is given up")
      .check(whole_number(1, 86'400))
      .show_default();
  parser.add_option("COMMAND", words->command, "what they run, after '--': generate, perplexity or bench").required();
  return [words] {
    check_command(words->command);
    return static_cast<ExitStatus>(run_ranks({words->command, words->ranks, words->timeout}));
  };
}

}  // namespace halfbyte::cli

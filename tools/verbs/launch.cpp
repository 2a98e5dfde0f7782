// halfbyte launch -n N -- VERB ...: one command by several processes, of this machine or of several.
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

void check_network(const RankedCommand& command) {
  const RankedNetwork& network = command.network;
  if (network.node >= network.nodes) {
    throw UsageError("launch: --node-rank " + std::to_string(network.node) + " is none of " +
                         std::to_string(network.nodes) + " machines, which are counted from 0 on",
                     "--node-rank");
  }
  if (network.nodes > 1 && network.host.empty())
    throw UsageError("launch: --nnodes wants --master-addr too, an address of the machine whose --node-rank is 0");
  if (network.host.empty() && !(network.interface.empty() && network.secret_file.empty()))
    throw UsageError("launch: --interface and --secret-file are for ranks of several machines (--master-addr)");
  if (network.nodes * command.ranks < 2) throw UsageError("launch: one process is not several; see --ranks, --nnodes");
}

void declare(OptionParser& parser, RankedCommand& command) {
  RankedNetwork& network = command.network;
  parser.add_option("-n,--ranks", command.ranks, "how many processes of this machine, which share its cores")
      .check(whole_number(1, 256))
      .show_default();
  parser
      .add_option("--timeout", command.timeout, "seconds until a process that gives no sign to the others is given up")
      .check(whole_number(1, 86'400))
      .show_default();
  parser.add_option("--nnodes", network.nodes, "how many machines; each is told the same, but for --node-rank")
      .check(whole_number(1, 4096))
      .show_default();
  parser.add_option("--node-rank", network.node, "which of them this is").check(whole_number(0, 4095)).show_default();
  parser
      .add_option("--master-addr", network.host,
                  "where machine 0 is reached: ranks go by the network then, and those of one of several machines by "
                  "memory too")
      .type_name("HOST");
  parser.add_option("--master-port", network.port, "a free port there").check(whole_number(1, 65'535)).show_default();
  parser
      .add_option("--interface", network.interface,
                  "the network interface to listen on, and no other; without it the loopback one (lo)")
      .type_name("NAME");
  parser.add_option("--secret-file", network.secret_file, "a secret that all ranks are to know").type_name("FILE");
  parser.add_option("COMMAND", command.words, "what they run, after '--': generate, perplexity or bench").required();
}

}  // namespace

Action prepare_launch(OptionParser& parser, const CommonOptions&) {
  const auto command = std::make_shared<RankedCommand>();
  declare(parser, *command);
  return [command] {
    check_command(command->words);
    check_network(*command);
    return static_cast<ExitStatus>(run_ranks(*command));
  };
}

}  // namespace halfbyte::cli

// halfbyte launch -n N -- VERB ...: one command by several processes, of this machine or of several.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tools/cli/errors.h"
#include "tools/cli/parse.h"
#include "tools/cli/rank_processes.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

// Verbs that ranks run together.
enum class Sharing {
  kModel,  // each has a part of it
  kLed,    // likewise, and the first rank hears what is asked, and leads the others
  kSteps,  // each has all of a model, and what it learnt to save when it is to end
  kWork,   // each converts a part
};
struct RankedVerb {
  std::string_view name;
  Sharing sharing;
};
constexpr RankedVerb kShared[] = {{"generate", Sharing::kModel}, {"perplexity", Sharing::kModel},
                                  {"bench", Sharing::kModel},    {"chat", Sharing::kLed},
                                  {"serve", Sharing::kLed},      {"finetune", Sharing::kSteps},
                                  {"quantize", Sharing::kWork}};

bool reads_stdin(const std::string& word) {
  return word == "-" || word.ends_with("=-") || word.ends_with("/dev/stdin") ||
         word.find("/dev/fd/") != std::string::npos;
}

// How the ranks divide a model: each a factor of how many there are.
struct Parallel {
  std::optional<int> tensor, pipeline;
};
struct Factor {
  std::string_view name;
  std::optional<int> Parallel::*count;
};
constexpr Factor kFactors[] = {{"tensor", &Parallel::tensor}, {"pipeline", &Parallel::pipeline}};

[[noreturn]] void fail_parallel(const std::string& text, const std::string& why) {
  throw UsageError("launch: --parallel '" + printable(text) + "' " + why);
}

// "tensor=2,pipeline=2"; what is not there is what is left of the ranks.
int stages_of(const std::string& text, int ranks) {
  Parallel found;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    const auto is_named = [&](const Factor& one) {
      return word.size() > one.name.size() && word.starts_with(one.name) && word[one.name.size()] == '=';
    };
    const auto* const factor = std::ranges::find_if(kFactors, is_named);
    if (factor == std::end(kFactors) || found.*factor->count)
      fail_parallel(text, "is not of the form tensor=A,pipeline=B");
    const std::string_view number = word.substr(factor->name.size() + 1);
    int count = 0;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), count);
    if (error != std::errc() || stop != number.data() + number.size() || count < 1)
      fail_parallel(text, "has no whole number from 1 on for " + std::string(factor->name));
    found.*factor->count = count;
    begin = end + 1;
  }
  const int pipeline = found.pipeline.value_or(std::max(1, ranks / found.tensor.value_or(ranks)));
  const std::int64_t tensor = found.tensor.value_or(std::max(1, ranks / pipeline));
  if (tensor * pipeline != ranks)
    fail_parallel(
        text, "is not for " + std::to_string(ranks) + " ranks (-n, of all machines): the two multiply to their number");
  return pipeline;
}

const RankedVerb& checked(const std::vector<std::string>& command, const std::string& parallel, bool rounds_sums) {
  const auto* const verb = std::ranges::find(kShared, command.front(), &RankedVerb::name);
  if (verb != std::end(kShared)) {
    const bool divides_the_model = verb->sharing == Sharing::kModel || verb->sharing == Sharing::kLed;
    if (!divides_the_model && !parallel.empty())
      throw UsageError("launch: --parallel says how ranks divide a model; those of '" + std::string(verb->name) +
                       "' divide the work instead");
    if (!divides_the_model && rounds_sums)
      throw UsageError("launch: --reduce-dtype is of what a model's layers give; ranks of '" + std::string(verb->name) +
                       "' have whole layers");
    const auto word = std::ranges::find_if(command, reads_stdin);
    if (word == command.end()) return *verb;
    throw UsageError("launch: ranks have no common input; put what '" + printable(*word) + "' would read into a file");
  }
  std::string all;
  for (const RankedVerb& each : kShared) all += (all.empty() ? "" : ", ") + std::string(each.name);
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
  if (network.host.empty() && command.reduce_dtype != "float32")
    throw UsageError("launch: --reduce-dtype is for ranks of several machines (--master-addr); memory adds in float32");
  if (network.nodes * command.ranks < 2) throw UsageError("launch: one process is not several; see --ranks, --nnodes");
}

void declare(OptionParser& parser, RankedCommand& command, std::string& parallel) {
  RankedNetwork& network = command.network;
  parser.add_option("-n,--ranks", command.ranks, "how many processes of this machine, which share its cores")
      .check(whole_number(1, 256))
      .show_default();
  parser
      .add_option("--timeout", command.timeout, "seconds until a process that gives no sign to the others is given up")
      .check(whole_number(1, kMostRanksTimeout))
      .show_default();
  parser.add_option("--nnodes", network.nodes, "how many machines; each is told the same, but for --node-rank")
      .check(whole_number(1, 4096))
      .show_default();
  parser.add_option("--node-rank", network.node, "which of them this is").check(whole_number(0, 4095)).show_default();
  parser
      .add_option("--master-addr", network.host,
                  "where machine 0 is reached; ranks then go by the network, and within a machine by memory too")
      .type_name("HOST");
  parser.add_option("--master-port", network.port, "a free port there").check(whole_number(1, 65'535)).show_default();
  parser
      .add_option("--interface", network.interface,
                  "the network interface to listen on, and no other; without it the loopback one (lo)")
      .type_name("NAME");
  parser.add_option("--secret-file", network.secret_file, "a secret that all ranks are to know").type_name("FILE");
  parser
      .add_option("--parallel", parallel,
                  "how they divide the model: stages of layers (pipeline), each of so many that divide those (tensor)")
      .type_name("tensor=A,pipeline=B");
  parser
      .add_option("--reduce-dtype", command.reduce_dtype,
                  "how sums of layers go between machines: float32, or bfloat16, which is half as many bytes")
      .check(one_of({"float32", "bfloat16"}))
      .show_default();
  parser
      .add_option("COMMAND", command.words,
                  "what they run, after '--': generate, perplexity, bench, chat, serve, finetune or quantize")
      .required();
}

}  // namespace

Action prepare_launch(OptionParser& parser, const CommonOptions&) {
  const auto command = std::make_shared<RankedCommand>();
  const auto parallel = std::make_shared<std::string>();
  declare(parser, *command, *parallel);
  return [command, parallel] {
    const Sharing sharing = checked(command->words, *parallel, command->reduce_dtype != "float32").sharing;
    command->is_led = sharing == Sharing::kLed;
    command->is_each_asked_to_end = sharing == Sharing::kSteps;
    check_network(*command);
    command->pipeline = stages_of(*parallel, command->network.nodes * command->ranks);
    return static_cast<ExitStatus>(run_ranks(*command));
  };
}

}  // namespace halfbyte::cli

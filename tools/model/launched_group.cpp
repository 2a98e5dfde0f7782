#include "tools/model/launched_group.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include <halfbyte/nested_group.h>
#include <halfbyte/network_group.h>
#include <halfbyte/shared_memory_group.h>

#include "tools/cli/errors.h"
#include "tools/cli/launcher.h"
#include "tools/cli/log.h"
#include "tools/cli/platform.h"
#include "tools/cli/rank_processes.h"
#include "tools/model/torch_log.h"

namespace halfbyte::cli {
namespace {

// Nobody of ours sets them here.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value ? value : "";
}

bool is_of_network() { return !variable(kMasterHost).empty() && !variable(kMasterPort).empty(); }

// The rank of this process in a group; nothing: it was started alone.
std::optional<int> rank_in_group() {
  const auto launched = launched_rank();
  if (!launched || (!is_of_network() && variable(kRanksMemory).empty())) return std::nullopt;
  return launched->rank;
}

std::chrono::milliseconds timeout() {
  const auto seconds = ranks_timeout();
  return seconds ? std::chrono::seconds(*seconds) : SharedMemoryOptions{}.timeout;
}

std::uint16_t port() {
  const std::string text = variable(kMasterPort);
  std::uint16_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out == 0)
    throw UsageError(std::string(kMasterPort) + "=" + printable(text) + " is no port from 1 to 65535");
  return out;
}

// Without the end of its last line, which editors add.
std::string secret() {
  const std::string path = variable(kRanksSecret);
  if (path.empty()) return "";
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
  if (in.fail() || text.empty())
    throw Error(ErrorCode::kIo, printable(path) + ": the ranks' secret cannot be read there, or is empty");
  return text;
}

std::shared_ptr<Group> join_network(const LaunchedRank& launched) {
  NetworkOptions options;
  options.host = variable(kMasterHost);
  options.port = port();
  options.interface = variable(kRanksInterface);
  options.secret = secret();
  options.timeout = timeout();
  // torchrun's own, which outlives a group that it starts again.
  options.is_store_there = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  options.name = variable("TORCHELASTIC_RESTART_COUNT");
  silence_torch();
  if (launched.rank > 0) discard_output();
  if (launched.rank == 0 && !options.interface.empty() && options.interface != "lo") {
    log_warning("ranks listen on " + printable(options.interface) + ": what they say to each other is neither " +
                "encrypted nor signed, so let nobody else use that network");
  }
  return halfbyte::join_network(launched.rank, launched.count, options);
}

std::shared_ptr<Group> join() {
  const auto launched = launched_rank();
  if (!launched) return nullptr;
  const std::shared_ptr<Group> whole = is_of_network() ? join_network(*launched) : nullptr;
  const std::string memory = variable(kRanksMemory);
  if (memory.empty()) return whole;
  const int rank = std::atoi(variable("LOCAL_RANK").c_str()), size = std::atoi(variable("LOCAL_WORLD_SIZE").c_str());
  if (whole && size < 2) return whole;
  // Who waits for one that waits for another machine lets it say so.
  const std::chrono::seconds longer(whole ? 4 : 0);
  const auto local = join_shared_memory_file(std::atoi(memory.c_str()), rank, size, {.timeout = timeout() + longer});
  return whole ? nested_group(whole, local) : local;
}

std::shared_ptr<Group>& joined() {
  static std::shared_ptr<Group> group;
  return group;
}

}  // namespace

std::shared_ptr<Group> launched_group() {
  static const bool has_joined = (joined() = join(), true);
  static_cast<void>(has_joined);
  return joined();
}

void leave_launched_group() { joined().reset(); }

int launched_pipeline() {
  const std::string stages = variable(kRanksPipeline);
  return !stages.empty() && launched_group() ? std::atoi(stages.c_str()) : 1;
}

Dtype launched_reduce_dtype() {
  const std::string text = variable(kRanksReduceDtype);
  if (text.empty() || text == name(Dtype::kFloat32)) return Dtype::kFloat32;
  if (text == name(Dtype::kBfloat16)) return Dtype::kBfloat16;
  throw UsageError(std::string(kRanksReduceDtype) + "=" + printable(text) + " is neither float32 nor bfloat16");
}

bool is_later_rank() { return rank_in_group().value_or(0) > 0; }

LeadOptions launched_lead() { return {.beat = timeout() / 4}; }

void refuse_for_ranks(const std::string& option, const std::string& why) {
  if (rank_in_group()) throw UsageError(option + " is not for ranks: " + why);
}

bool is_first_rank() { return !launched_group() || launched_group()->rank() == 0; }

void refuse_ranks(const std::string& verb) {
  const auto launched = launched_rank();
  if (!launched || !is_of_network()) return;
  throw UsageError(verb + ": is not run by several processes, and " + launched->said_by + " say that this is one of " +
                   std::to_string(launched->count) + "; start one alone");
}

}  // namespace halfbyte::cli

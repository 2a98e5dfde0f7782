// Processes of this machine that run one command together, as ranks of a group.
#pragma once

#include <string>
#include <vector>

namespace halfbyte::cli {

// The environment's variable by which a rank finds the memory of its group: a descriptor that it inherited.
inline constexpr const char* kRanksMemory = "HALFBYTE_RANKS_MEMORY";
// And by which it knows how long to wait for another. Units: seconds.
inline constexpr const char* kRanksTimeout = "HALFBYTE_RANKS_TIMEOUT";
inline constexpr int kMostRanksTimeout = 86'400;
// Where ranks of several machines meet, as torchrun says it, and on which interface they listen, as Gloo is told.
inline constexpr const char* kMasterHost = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";
inline constexpr const char* kRanksInterface = "GLOO_SOCKET_IFNAME";
// A file with the secret that all ranks know.
inline constexpr const char* kRanksSecret = "HALFBYTE_RANKS_SECRET_FILE";

// How ranks of several machines find each other.
struct RankedNetwork {
  int nodes = 1, node = 0;  // machines that have as many ranks each, and which of them this is
  std::string host;         // of rank 0. Empty: all are of this machine, and go by memory that they share alone
  int port = 29'500;
  std::string interface, secret_file;  // empty: what the environment says, else the loopback one, and no secret
};

// And in how many stages of layers the ranks are.
inline constexpr const char* kRanksPipeline = "HALFBYTE_RANKS_PIPELINE";

// And the dtype in which sums of layers go between machines.
inline constexpr const char* kRanksReduceDtype = "HALFBYTE_RANKS_REDUCE_DTYPE";

struct RankedCommand {
  std::vector<std::string> words;  // of this program, without its name
  int ranks = 2;                   // of this machine
  int timeout = 300;               // Units: seconds.
  int pipeline = 1;                // stages
  std::string reduce_dtype = "float32";
  // The first rank says when all are done: a signal is a word to it, and not yet the end.
  bool is_led = false;
  // Ctrl-C, SIGTERM and SIGHUP are every rank's, which end by themselves and may have much to write: they are waited
  // for, until they are told twice.
  bool is_each_asked_to_end = false;
  RankedNetwork network = {};
};

// Runs it to its end: RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE are set, and this process's cores are divided
// where there are enough. Output, and what is asked of the terminal, are the first rank's; of another one what it wrote
// to stderr is shown if it is the first to fail. When one fails the others are ended. Ctrl-C, SIGTERM and SIGHUP are
// the first rank's if nothing else is said, and the others end with it. Of a led command, the first rank is told to end
// when another fails. No rank outlives this process. Returns the exit status of the first rank that failed (128 + the
// signal that ended it), or 0. Errors: kIo, kNoResources.
int run_ranks(const RankedCommand& command);

}  // namespace halfbyte::cli

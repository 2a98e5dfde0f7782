// Which of several processes this one is, where a launcher started them together: torchrun, Open MPI, MPICH, Slurm.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace halfbyte::cli {

struct LaunchedRank {
  int rank = 0;         // from 0
  int count = 1;        // of all machines
  std::string said_by;  // "RANK and WORLD_SIZE"
};

// The value of a variable of the environment; null: not set.
using Environment = std::function<const char*(const char* name)>;

// Nothing where no launcher says so, or it started one process. Errors: UsageError for numbers that make no sense.
std::optional<LaunchedRank> launched_rank(const Environment& environment);
std::optional<LaunchedRank> launched_rank();

// How long a rank waits for another where the environment says so (kRanksTimeout). Units: seconds. Errors: UsageError
// for what is no number from 1 to 86400.
std::optional<int> ranks_timeout(const Environment& environment);
std::optional<int> ranks_timeout();

}  // namespace halfbyte::cli

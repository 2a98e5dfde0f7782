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

}  // namespace halfbyte::cli

#include "tools/cli/launcher.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tools/cli/errors.h"
#include "tools/cli/rank_processes.h"

namespace halfbyte::cli {
namespace {

struct LauncherRow {
  const char* rank;
  const char* count;
};

// Slurm sets SLURM_NTASKS for the script of a job too, which is one process; of a step it counts the processes.
constexpr LauncherRow kLaunchers[] = {
    {"RANK", "WORLD_SIZE"},  // torchrun, and what does as it does
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
};

const char* own_environment(const char* name) { return std::getenv(name); }  // NOLINT(concurrency-mt-unsafe)

std::optional<int> number_of(std::string_view text) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const Environment& environment) {
  for (const LauncherRow& row : kLaunchers) {
    const char* const rank = environment(row.rank);
    const char* const count = environment(row.count);
    if (!rank || !count) continue;
    const auto place = number_of(rank), all = number_of(count);
    if (!place || !all || *all < 1 || *place < 0 || *place >= *all) {
      throw UsageError(std::string(row.rank) + "=" + printable(rank) + " and " + row.count + "=" + printable(count) +
                       ": no process is that; a launcher sets both (a rank from 0 on), or unset them");
    }
    if (*all == 1) return std::nullopt;
    return LaunchedRank{*place, *all, std::string(row.rank) + " and " + row.count};
  }
  return std::nullopt;
}

std::optional<int> ranks_timeout(const Environment& environment) {
  const char* const said = environment(kRanksTimeout);
  if (!said || !*said) return std::nullopt;
  const auto seconds = number_of(said);
  if (!seconds || *seconds < 1 || *seconds > kMostRanksTimeout) {
    throw UsageError(std::string(kRanksTimeout) + "=" + printable(said) + " is no number of seconds from 1 to " +
                     std::to_string(kMostRanksTimeout));
  }
  return seconds;
}

std::optional<LaunchedRank> launched_rank() { return launched_rank(own_environment); }
std::optional<int> ranks_timeout() { return ranks_timeout(own_environment); }

}  // namespace halfbyte::cli

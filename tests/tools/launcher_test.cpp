#include "tools/cli/launcher.h"

#include <map>
#include <string>

#include "tests/catch.h"
#include "tools/cli/errors.h"

namespace halfbyte::cli {
namespace {

using Variables = std::map<std::string, std::string>;

Environment of(const Variables& variables) {
  return [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::optional<LaunchedRank> rank_in(const Variables& variables) { return launched_rank(of(variables)); }

TEST_CASE("launchers: each says rank and count in variables of its own", "[launcher]") {
  for (const auto& [rank, count] : {std::pair("RANK", "WORLD_SIZE"),
                                    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                    {"PMI_RANK", "PMI_SIZE"},
                                    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
    INFO(rank);
    const auto found = rank_in({{rank, "2"}, {count, "4"}});
    REQUIRE(found);
    CHECK(found->rank == 2);
    CHECK(found->count == 4);
    CHECK(found->said_by == std::string(rank) + " and " + count);
    CHECK_FALSE(rank_in({{rank, "0"}, {count, "1"}}));
    CHECK_FALSE(rank_in({{rank, "0"}}));
  }
}

TEST_CASE("launchers: the script of a Slurm job is one process", "[launcher]") {
  CHECK_FALSE(rank_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));
  CHECK_FALSE(rank_in({}));
}

TEST_CASE("launchers: numbers that make no sense are named", "[launcher]") {
  for (const auto& [rank, count] : {std::pair("4", "4"), {"-1", "4"}, {"x", "4"}, {"0", ""}, {"0", "0"}, {"1 ", "4"}}) {
    INFO(rank << " of " << count);
    CHECK_THROWS_AS(rank_in({{"RANK", rank}, {"WORLD_SIZE", count}}), UsageError);
  }
}

TEST_CASE("launchers: how long ranks wait is a number of seconds", "[launcher]") {
  const auto timeout = [](const char* text) { return ranks_timeout(of({{"HALFBYTE_RANKS_TIMEOUT", text}})); };
  CHECK(timeout("86400") == 86'400);
  CHECK_FALSE(timeout(""));
  CHECK_FALSE(ranks_timeout(of({})));
  for (const char* text : {"0", "-3", "4 s", "86401", "99999999999"}) CHECK_THROWS_AS(timeout(text), UsageError);
}

}  // namespace
}  // namespace halfbyte::cli

#include "tools/model/launched_group.h"

#include <cstdlib>

#include <halfbyte/shared_memory_group.h>

#include "tools/cli/launcher.h"
#include "tools/cli/rank_processes.h"

namespace halfbyte::cli {
namespace {

std::shared_ptr<Group> join() {
  const char* const memory = std::getenv(kRanksMemory);  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it here
  const auto launched = memory ? launched_rank() : std::nullopt;
  if (!launched) return nullptr;
  SharedMemoryOptions options;
  if (const char* const timeout = std::getenv(kRanksTimeout))  // NOLINT(concurrency-mt-unsafe)
    options.timeout = std::chrono::seconds(std::atoi(timeout));
  return join_shared_memory_file(std::atoi(memory), launched->rank, launched->count, options);
}

}  // namespace

std::shared_ptr<Group> launched_group() {
  static const std::shared_ptr<Group> group = join();
  return group;
}

bool is_first_rank() { return !launched_group() || launched_group()->rank() == 0; }

}  // namespace halfbyte::cli

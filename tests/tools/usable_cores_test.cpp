// On a tree of files that says what Linux would of another machine.
#include "tools/cli/usable_cores.h"

#include <sched.h>

#include <fstream>
#include <string>

#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte::cli {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

int cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  return CPU_COUNT(&set);
}

TEST_CASE("threads by default: one a CPU where nothing is known of cores and quotas", "[threads]") {
  const tests::Scratch root;
  CHECK(usable_cores(root / "") == cpus());
}

TEST_CASE("threads by default: CPUs that share a core count once", "[threads]") {
  const tests::Scratch root;
  for (int cpu = 0; cpu < 1024; ++cpu)
    write(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology/thread_siblings_list", "0-1023");
  CHECK(usable_cores(root / "") == 1);
}

TEST_CASE("threads by default: quotas of control groups", "[threads]") {
  const tests::Scratch root;
  const fs::path groups = root / "sys/fs/cgroup";
  struct Case {
    std::string membership, file, text;
    bool is_one;
  };
  const Case row = GENERATE(values<Case>({
      {"0::/a/b", "a/b/cpu.max", "100000 100000", true},
      {"0::/a/b", "a/b/cpu.max", "30000 100000", true},
      {"0::/a/b", "a/cpu.max", "50000 50000", true},  // of the group above
      {"0::/../..", "cpu.max", "100000 100000", true},
      {"0::/a/b", "a/b/cpu.max", "max 100000", false},
      {"0::/a/b", "a/b/cpu.max", "400000000 100000", false},
      {"0::/a/b", "a/b/cpu.max", "nonsense", false},
      {"0::/a/b", "c/cpu.max", "100000 100000", false},  // another's
      {"4:cpu,cpuacct:/a", "cpu,cpuacct/a/cpu.cfs_quota_us", "100000", true},
      {"4:cpu,cpuacct:/a", "cpu,cpuacct/a/cpu.cfs_quota_us", "-1", false},
      {"4:cpuset:/a", "cpuset/a/cpu.cfs_quota_us", "100000", false},
  }));
  CAPTURE(row.membership, row.file, row.text);
  write(root / "proc/self/cgroup", "12:pids:/x\n" + row.membership);
  write(groups / row.file, row.text);
  write((groups / row.file).parent_path() / "cpu.cfs_period_us", "100000");
  CHECK(usable_cores(root / "") == (row.is_one ? 1 : cpus()));
}

}  // namespace
}  // namespace halfbyte::cli

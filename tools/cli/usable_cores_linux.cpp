// Source: Linux, Documentation/admin-guide/cputopology.rst, cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst
// (version 1).
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "quant/threads.h"
#include "tools/cli/usable_cores.h"

namespace halfbyte::cli {
namespace {

namespace fs = std::filesystem;

// Empty: it cannot be read.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// CPUs of one core name the same siblings. 0: not known.
int physical_cores(const fs::path& root) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mine)) continue;
    const std::string name = "cpu" + std::to_string(cpu);
    const std::string siblings = first_line(root / "sys/devices/system/cpu" / name / "topology/thread_siblings_list");
    cores.insert(siblings.empty() ? name : siblings);
  }
  return static_cast<int>(cores.size());
}

// Microseconds of each period that may be used. No limit: the words say so, or there are none.
void limit(int& cores, double quota, double period) {
  if (quota > 0 && period > 0) cores = static_cast<int>(std::min<double>(cores, std::ceil(quota / period)));
}

void limit_by(const fs::path& group, int& cores) {
  std::istringstream both(first_line(group / "cpu.max"));  // version 2: "max 100000" or "150000 100000"
  double quota = 0, period = 0;
  if (both >> quota >> period) limit(cores, quota, period);
  std::istringstream one(first_line(group / "cpu.cfs_quota_us")), other(first_line(group / "cpu.cfs_period_us"));
  if (one >> quota && other >> period) limit(cores, quota, period);
}

// A group's own folder and those above it, up to where its hierarchy is mounted.
void limit_by_all(const fs::path& mounted, fs::path group, int& cores) {
  for (group = group.relative_path(); !group.empty(); group = group.parent_path()) limit_by(mounted / group, cores);
  limit_by(mounted, cores);
}

}  // namespace

int usable_cores(const fs::path& root) {
  int cores = std::max(1, physical_cores(root));
  const fs::path mounted = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", or "4:cpu,cpuacct:/docker/1f2e"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      limit_by_all(mounted, group, cores);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      limit_by_all(mounted / controllers, group, cores);
      limit_by_all(mounted / "cpu", group, cores);
    }
  }
  return cores;
}

void use_usable_cores() {
  if (const char* word = std::getenv("OMP_NUM_THREADS"); word && *word) return;
  const int cores = usable_cores();
  setenv("OMP_NUM_THREADS", std::to_string(cores).c_str(), /*overwrite=*/1);
  quant::set_max_threads(cores);
}

}  // namespace halfbyte::cli

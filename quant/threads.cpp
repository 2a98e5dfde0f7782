#include "quant/threads.h"

#include <atomic>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <halfbyte/error.h>

#include "quant/thread_pool.h"

#if __has_include(<omp.h>)
#include <omp.h>
#else
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
int omp_get_num_threads();
int omp_get_thread_num();
}
#endif

namespace halfbyte::quant {

int max_threads() noexcept { return omp_get_max_threads(); }
void set_max_threads(int count) noexcept { omp_set_num_threads(count); }
int team_size() noexcept { return omp_get_num_threads(); }
int thread_in_team() noexcept { return omp_get_thread_num(); }

void run_in_team(int count, void (*work)(void* context, std::size_t thread), void* context) noexcept {
#pragma omp parallel num_threads(count)
  work(context, static_cast<std::size_t>(thread_in_team()));
}

namespace {

// All at once, as OpenMP and our calls will have them. The C library keeps their stacks, for them.
void try_threads(int count) {
  std::latch all_made(1);
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < 2 * (count - 1); ++i) threads.emplace_back([&] { all_made.wait(); });
  } catch (const std::system_error& error) {
    all_made.count_down();
    throw Error(ErrorCode::kNoResources, "cannot start " + std::to_string(count) +
                                             " threads: " + error.code().message() +
                                             "; use fewer (OMP_NUM_THREADS), or allow more memory or processes (ulimit "
                                             "-v, ulimit -u)");
  }
  all_made.count_down();
}

}  // namespace

void start_own_threads(int count) {
  static std::atomic<int> made = 1;
  if (count <= made) return;
  try_threads(count);
  make_threads(count);
  made = count;
}

void start_threads(int count) {
  static std::atomic<int> made = 1;
  if (count <= made) return;
  start_own_threads(count);
#pragma omp parallel num_threads(count)
  team_size();
  made = count;
}

}  // namespace halfbyte::quant

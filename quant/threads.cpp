#include "quant/threads.h"

#if __has_include(<omp.h>)
#include <omp.h>
#else
extern "C" {
int omp_get_max_threads();
int omp_get_num_threads();
int omp_get_thread_num();
}
#endif

namespace halfbyte::quant {

int max_threads() noexcept { return omp_get_max_threads(); }
int team_size() noexcept { return omp_get_num_threads(); }
int thread_in_team() noexcept { return omp_get_thread_num(); }

}  // namespace halfbyte::quant

#include "loader/thread_count.h"

#include <ATen/Parallel.h>

namespace halfbyte {

int thread_count() { return at::get_num_threads(); }
void set_thread_count(int count) { at::set_num_threads(count); }

}  // namespace halfbyte

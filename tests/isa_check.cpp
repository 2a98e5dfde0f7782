// Ends with 0 when the kernels named on the command line are the ones in use (HALFBYTE_ISA), 77 when this CPU lacks
// them.
#include <cstdio>
#include <cstring>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "quant/kernels/kernels.h"

namespace {

bool is_lacking(const char* name) {
  std::size_t count = 0;
  const halfbyte::quant::kernels::Level* levels = halfbyte::quant::kernels::levels(&count);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::strcmp(levels[i].name, name) == 0) return !levels[i].is_available();
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && is_lacking(argv[1])) return 77;
  try {
    const char* name = halfbyte::quant::isa_name();
    if (argc == 2 && std::strcmp(argv[1], name) == 0) return 0;
    std::fprintf(stderr, "the kernels in use are %s\n", name);
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

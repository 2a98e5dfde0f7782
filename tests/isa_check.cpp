// Ends with 0 when the kernels named on the command line are the ones in use (HALFBYTE_ISA), 77 when this CPU lacks
// them.
#include <cstdio>
#include <cstring>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

int main(int argc, char** argv) {
  try {
    const char* name = halfbyte::quant::isa_name();
    if (argc == 2 && std::strcmp(argv[1], name) == 0) return 0;
    std::fprintf(stderr, "the kernels in use are %s\n", name);
    return 1;
  } catch (const halfbyte::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == halfbyte::ErrorCode::kUnsupported ? 77 : 1;
  }
}

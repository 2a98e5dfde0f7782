// libFuzzer's program for all targets: the environment variable HALFBYTE_FUZZ_TARGET says which. tools/fuzz.sh runs it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <halfbyte/error.h>

#include "tests/fuzz/memory.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

const Target* chosen = nullptr;
bool says_errors = false;  // what each input is refused for

}  // namespace

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "halfbyte_fuzz: does not hold: %s\n", what);
  std::abort();
}

}  // namespace halfbyte::fuzz

using namespace halfbyte::fuzz;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("HALFBYTE_FUZZ_TARGET");
  const auto row = std::ranges::find(targets(), name ? name : "", &Target::name);
  if (row == targets().end()) {
    for (const Target& target : targets())
      std::printf("%.*s\n", static_cast<int>(target.name.size()), target.name.data());
    std::exit(name ? 2 : 0);
  }
  chosen = &*row;
  says_errors = std::getenv("HALFBYTE_FUZZ_ERRORS") != nullptr;
  install_memory_hooks();
  return 0;
}

// What is no Error ends the process.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const MemoryBound bound(size);
    chosen->run({reinterpret_cast<const char*>(data), size});
  } catch (const halfbyte::Error& error) {
    if (says_errors) std::fprintf(stderr, "refused: %s\n", error.what());
  }
  return 0;
}

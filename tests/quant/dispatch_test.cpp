// The choice of kernels: names, order, and loud failures.
#include <cstdlib>
#include <span>
#include <string>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "quant/kernels/kernels.h"
#include "tests/catch.h"

namespace {

using namespace halfbyte;
namespace kernels = halfbyte::quant::kernels;

std::span<const kernels::Level> levels() {
  std::size_t count = 0;
  const kernels::Level* first = kernels::levels(&count);
  return {first, count};
}

TEST_CASE("the reference level ends the list and is always there", "[quant]") {
  REQUIRE_FALSE(levels().empty());
  CHECK(std::string(levels().back().name) == "ref");
  CHECK(levels().back().is_available());
}

TEST_CASE("a level is the one it is called", "[quant]") {
  for (const kernels::Level& level : levels()) {
    CHECK(std::string(level.name) == level.table()->name);
    if (level.is_available()) CHECK(&kernels::kernels(level.name) == level.table());
  }
}

TEST_CASE("an unknown level is refused by name and the known ones are listed", "[quant]") {
  try {
    kernels::kernels("sse9");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK_THAT(error.what(), Catch::Contains("sse9") && Catch::Contains("ref"));
  }
}

TEST_CASE("HALFBYTE_ISA decides, else the best level that this CPU has", "[quant]") {
  const char* forced = std::getenv("HALFBYTE_ISA");
  std::string expected = forced ? forced : "";
  for (const kernels::Level& level : levels()) {
    if (expected.empty() && level.is_available()) expected = level.name;
  }
  CHECK(quant::isa_name() == expected);
}

}  // namespace

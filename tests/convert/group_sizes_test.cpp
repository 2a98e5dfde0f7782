#include "convert/group_sizes.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::fitting_group_size;
using convert::has_group_size;

TEST_CASE("group sizes: what divides is taken as asked, else the largest that does, else nothing", "[plan]") {
  for (const Scheme& scheme : schemes()) {
    const auto sizes = group_sizes(scheme);
    REQUIRE_FALSE(sizes.empty());
    for (std::int64_t columns = 1; columns <= 512; ++columns) {
      std::optional<std::int64_t> largest;
      for (const std::int64_t size : sizes) {
        if (columns % size == 0) largest = std::max(largest.value_or(0), size);
      }
      for (const std::int64_t wanted : {std::int64_t{16}, std::int64_t{32}, std::int64_t{64}, std::int64_t{128}}) {
        INFO(scheme.name << ", " << columns << " columns, groups of " << wanted);
        const bool is_taken = has_group_size(scheme, wanted) && columns % wanted == 0;
        REQUIRE(fitting_group_size(scheme, wanted, columns) == (is_taken ? std::optional(wanted) : largest));
      }
      INFO(scheme.name << ", " << columns << " columns, one scale a row");
      const bool has_rows = has_group_size(scheme, kPerChannel);
      REQUIRE(fitting_group_size(scheme, kPerChannel, columns) == (has_rows ? std::optional(columns) : largest));
    }
  }
}

TEST_CASE("group sizes: one that no scheme has is none, and refused by name", "[plan]") {
  for (const Scheme& scheme : schemes()) {
    for (const std::int64_t wanted : {-64, -1, 1, 7, 48, 256}) {
      INFO(scheme.name << ", groups of " << wanted);
      CHECK_FALSE(has_group_size(scheme, wanted));
      CHECK(fitting_group_size(scheme, wanted, 5) == std::nullopt);
      CHECK(fitting_group_size(scheme, wanted, 256) == group_sizes(scheme).front());
      check_error(
          ErrorCode::kInvalidArgument,
          {std::string(scheme.name), "groups of " + std::to_string(wanted), convert::listed(group_sizes(scheme))},
          [&] { convert::check_group_size(wanted, scheme); });
    }
    CHECK(fitting_group_size(scheme, scheme.default_group, 256) == scheme.default_group);
  }
}

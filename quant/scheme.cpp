#include <halfbyte/scheme.h>

#include <algorithm>
#include <array>

namespace halfbyte {
namespace {

constexpr auto kSchemes = std::to_array<Scheme>({
    {SchemeId::kSymInt4, "sym_int4", 4, -8, 7, 8},
    {SchemeId::kSymInt8, "sym_int8", 8, -128, 127, 128},
});

}  // namespace

std::span<const Scheme> schemes() noexcept { return kSchemes; }
const Scheme& scheme(SchemeId id) noexcept { return *std::ranges::find(kSchemes, id, &Scheme::id); }

const Scheme* find_scheme(std::string_view name) noexcept {
  const auto row = std::ranges::find(kSchemes, name, &Scheme::name);
  return row == kSchemes.end() ? nullptr : &*row;
}

}  // namespace halfbyte

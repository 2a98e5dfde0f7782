// What ranks must have in common, compared before they go on together. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <halfbyte/group.h>

namespace halfbyte {

// Each rank says the same things in the same order ("threads 4"); one message where all of them do. Errors: kContract
// naming the first rank that says another one than rank 0, how it differs ("runs another thing"), and what both say.
void check_alike(Group& group, std::span<const std::string> things, const std::string& difference);

// Of what is too long to be said. `before`: of what stood before these bytes. Not for what somebody may have made to
// look alike.
std::uint64_t likeness(std::span<const std::byte> bytes, std::uint64_t before = 0) noexcept;
std::string likeness_text(std::uint64_t value);  // 16 hexadecimal digits

}  // namespace halfbyte

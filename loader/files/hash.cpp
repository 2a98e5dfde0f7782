#include "loader/files/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <new>

namespace halfbyte::files {

Hash128::Hash128() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  reset();
}

Hash128::~Hash128() = default;
Hash128::Hash128(Hash128&&) noexcept = default;
Hash128& Hash128::operator=(Hash128&&) noexcept = default;

void Hash128::Free::operator()(XXH3_state_s* state) const noexcept { XXH3_freeState(state); }
void Hash128::reset() { XXH3_128bits_reset(state_.get()); }
void Hash128::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Hash128::hex() const {
  XXH128_canonical_t canonical{};
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  std::string out;
  for (const unsigned char byte : canonical.digest) {
    out += "0123456789abcdef"[byte >> 4];
    out += "0123456789abcdef"[byte & 15];
  }
  return out;
}

std::string hash_hex(std::string_view text) {
  Hash128 hash;
  hash.update(text);
  return hash.hex();
}

bool is_hash_hex(std::string_view text) noexcept {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace halfbyte::files

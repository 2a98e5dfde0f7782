// The hash of everything halfbyte records: XXH3, 128 bits, as `xxhsum -H2` prints it. Source: xxHash,
// doc/xxhash_spec.md.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace halfbyte::files {

class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(Hash128&&) noexcept;
  Hash128& operator=(Hash128&&) noexcept;
  void reset();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  std::string hex() const;  // 32 lower-case hexadecimal digits, highest first

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::string hash_hex(std::string_view text);
bool is_hash_hex(std::string_view text) noexcept;

}  // namespace halfbyte::files

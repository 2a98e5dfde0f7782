#include "models/parallel/alike.h"

#include <cstdio>
#include <cstring>
#include <vector>

#include <halfbyte/error.h>

#include "models/json/printable.h"

namespace halfbyte {
namespace {

constexpr const char* kNothingMore = "nothing more";

// Errors: as check_alike().
void check_one(Group& group, const std::string& own, const std::string& difference) {
  const std::vector<std::string> all = group.gather(own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(ErrorCode::kContract, "rank " + std::to_string(rank) + " " + difference + " than rank 0: " +
                                          printable(all[rank]) + "; there it is " + printable(all[0]));
  }
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace

void check_alike(Group& group, std::span<const std::string> things, const std::string& difference) {
  std::uint64_t whole = things.size();
  for (const std::string& one : things) whole = likeness(std::as_bytes(std::span(one)), whole);
  const std::vector<std::string> all = group.gather(likeness_text(whole));
  bool are_alike = true;
  for (const std::string& each : all) are_alike = are_alike && each == all[0];
  if (are_alike) return;
  // They may have other numbers of things to say: the first that differs ends this in all of them.
  for (std::size_t i = 0; i < things.size(); ++i) check_one(group, things[i], difference);
  check_one(group, kNothingMore, difference);
  throw Error(ErrorCode::kContract, "a rank " + difference + " than rank 0, in what neither says");
}

std::uint64_t likeness(std::span<const std::byte> bytes, std::uint64_t before) noexcept {
  std::uint64_t hash = mixed(before, bytes.size());
  for (; bytes.size() >= sizeof(std::uint64_t); bytes = bytes.subspan(sizeof(std::uint64_t))) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    hash = mixed(hash, word);
  }
  std::uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  return mixed(hash, rest);
}

std::string likeness_text(std::uint64_t value) {
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(value));
  return out;
}

}  // namespace halfbyte

#include "models/tokenizers/huggingface/vocabulary.h"

#include <algorithm>
#include <bit>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/allowance.h"
#include "models/tokenizers/huggingface/hash.h"

namespace halfbyte::models::huggingface {
namespace {

// Ids may have holes: embeddings are often padded, and tokens dropped. A table of all ids stays small all the same.
constexpr std::size_t kMaxHoles = std::size_t{1} << 20;
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 31;

}  // namespace

Vocabulary::Vocabulary(const std::vector<std::pair<std::string, std::uint32_t>>& entries, const std::string& where) {
  std::size_t bytes = 0, end = 0;
  for (const auto& [token, id] : entries) {
    if (token.size() > kMaxTokenBytes)
      throw Error(ErrorCode::kCorrupt, where + ": " + in_quotes(std::string_view(token).substr(0, 64)) +
                                           "... is a token of " + std::to_string(token.size()) +
                                           " bytes, and no model has tokens of more than " +
                                           std::to_string(kMaxTokenBytes));
    bytes += token.size();
    end = std::max(end, std::size_t{id} + 1);
    if (id > entries.size() + kMaxHoles)
      throw Error(ErrorCode::kCorrupt, where + ": a token has id " + std::to_string(id) + ", far beyond the " +
                                           std::to_string(entries.size()) + " tokens");
  }
  if (bytes > kMaxTextBytes) throw Error(ErrorCode::kCorrupt, where + ": the tokens have more than 2 GiB");
  texts_.reserve(bytes);
  slots_.resize(std::bit_ceil(entries.size() * 2 + 2));
  begins_.resize(end);
  for (const auto& [token, id] : entries) slot_for(token).id = id;
  for (const Slot& slot : slots_) {
    if (slot.length == kNone) continue;
    has_shared_ids_ |= begins_[slot.id].length != kNone;
    begins_[slot.id] = {slot.begin, slot.length};
  }
}

const Vocabulary::Slot& Vocabulary::find_slot(std::string_view token) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash_of(token) & mask;
  while (slots_[i].length != kNone && std::string_view(texts_).substr(slots_[i].begin, slots_[i].length) != token)
    i = (i + 1) & mask;
  return slots_[i];
}

Vocabulary::Slot& Vocabulary::slot_for(std::string_view token) {
  auto& slot = const_cast<Slot&>(find_slot(token));
  if (slot.length != kNone) return slot;
  slot = {static_cast<std::uint32_t>(texts_.size()), static_cast<std::uint32_t>(token.size()), 0};
  texts_.append(token);
  ++size_;
  return slot;
}

std::vector<std::pair<std::string_view, std::uint32_t>> Vocabulary::entries() const {
  std::vector<std::pair<std::string_view, std::uint32_t>> all;
  for (const Slot& slot : slots_)
    if (slot.length != kNone) all.emplace_back(std::string_view(texts_).substr(slot.begin, slot.length), slot.id);
  return all;
}

std::optional<std::uint32_t> Vocabulary::find(std::string_view token) const noexcept {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = find_slot(token);
  return slot.length == kNone ? std::nullopt : std::optional(slot.id);
}

std::string_view Vocabulary::token(std::uint32_t id) const noexcept {
  return has(id) ? std::string_view(texts_).substr(begins_[id].begin, begins_[id].length) : std::string_view();
}

}  // namespace halfbyte::models::huggingface

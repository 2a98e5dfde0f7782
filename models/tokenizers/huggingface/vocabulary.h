// A model's tokens: spelling to id and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halfbyte::models::huggingface {

class Vocabulary {
 public:
  Vocabulary() = default;
  // A later entry of a spelling replaces an earlier one. `where` names the list in errors.
  // Errors: kCorrupt for an id far beyond the number of tokens, a token that is too long, or more text than 2 GiB.
  Vocabulary(const std::vector<std::pair<std::string, std::uint32_t>>& entries, const std::string& where);

  std::optional<std::uint32_t> find(std::string_view token) const noexcept;
  std::string_view token(std::uint32_t id) const noexcept;  // empty for an id that has none
  bool has(std::uint32_t id) const noexcept { return id < begins_.size() && begins_[id].length != kNone; }
  std::vector<std::pair<std::string_view, std::uint32_t>> entries() const;  // of any order; valid as long as this
  std::size_t size() const noexcept { return size_; }                       // different tokens
  std::uint32_t id_end() const noexcept { return static_cast<std::uint32_t>(begins_.size()); }  // ids are smaller
  bool has_shared_ids() const noexcept { return has_shared_ids_; }                              // two spellings, one id

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Spelling {
    std::uint32_t begin = 0;
    std::uint32_t length = kNone;
  };
  struct Slot {
    std::uint32_t begin = 0;
    std::uint32_t length = kNone;
    std::uint32_t id = 0;
  };
  Slot& slot_for(std::string_view token);
  const Slot& find_slot(std::string_view token) const noexcept;

  std::string texts_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  std::vector<Spelling> begins_;
  std::size_t size_ = 0;
  bool has_shared_ids_ = false;
};

}  // namespace halfbyte::models::huggingface

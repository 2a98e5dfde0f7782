// A string that knows which of its bytes are the template's own and which came from the caller: messages, tools,
// documents. Special tokens are looked for in the first alone, so no text can forge a turn.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models::jinja {

enum class Origin { kTemplate, kGiven };

// Bytes [begin, end) of one origin.
struct Run {
  std::size_t begin;
  std::size_t end;
  Origin origin;
};

// UTF-8, as everything that is read here has been checked to be; no operation depends on it.
class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, Origin origin = Origin::kTemplate);

  const std::string& bytes() const noexcept { return bytes_; }
  std::string_view view() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return bytes_.size(); }
  bool empty() const noexcept { return bytes_.empty(); }
  std::size_t held_bytes() const noexcept { return bytes_.size() + given_.size() * sizeof(Range); }

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append(other, 0, other.size()); }
  // Bytes [begin, end) of another text, each with its origin.
  void append(const Text& other, std::size_t begin, std::size_t end);

  // begin <= end <= size().
  Text part(std::size_t begin, std::size_t end) const;
  Origin origin_at(std::size_t byte) const noexcept;
  // All bytes, in order; neighbours differ in origin.
  std::vector<Run> runs() const;

 private:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  void add_given(std::size_t begin, std::size_t end);
  std::vector<Range>::const_iterator first_ending_after(std::size_t byte) const noexcept;

  std::string bytes_;
  std::vector<Range> given_;  // sorted, apart from each other
};

}  // namespace halfbyte::models::jinja

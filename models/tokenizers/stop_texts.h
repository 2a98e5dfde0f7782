// Finds texts that end generation in a text that comes piece by piece. Needs no LibTorch.
#pragma once

#include <string>
#include <vector>

namespace halfbyte::models {

class StopTexts {
 public:
  // None of them is empty.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // What of the text so far can be shown now: nothing that may become a stop text, and nothing after one was found.
  std::string push(const std::string& piece);
  // What was held back, once no more comes; nothing after a stop text was found.
  std::string finish();
  // Whether a stop text is complete: the one that is first.
  bool is_found() const noexcept { return is_found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool is_found_ = false;
};

// `text` up to the stop text that is complete first, looked for from `begin` on.
std::string before_stop_text(const std::string& text, std::size_t begin, const std::vector<std::string>& stops);

}  // namespace halfbyte::models

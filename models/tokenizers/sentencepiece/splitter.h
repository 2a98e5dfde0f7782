// Splits normalised text into pieces of the vocabulary: by merges (BPE), or by the best sum of scores (unigram).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/tokenizers/sentencepiece/model_file.h"

namespace halfbyte::models::sentencepiece {

// A piece found in a part of the text: `size` bytes, after those before it.
struct Split {
  std::uint32_t size;
  std::int32_t id;
};

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
};

// What goes from part to part of one text.
struct SplitState {
  float score = 0;  // unigram: of the best path so far
  std::unordered_map<std::string, std::vector<Split>, StringHash, std::equal_to<>> known;  // BPE: words seen before
};

class Splitter {
 public:
  virtual ~Splitter() = default;
  // Appends to `out`. `part` begins and ends where joins() says that no piece can cross, or with the text.
  virtual void split(std::string_view part, SplitState& state, std::vector<Split>& out) const = 0;
  // Whether any piece has these two characters side by side.
  virtual bool joins(std::string_view left, std::string_view right) const noexcept = 0;
};

// `model` must outlive the result.
std::unique_ptr<Splitter> make_bpe(const ModelFile& model);
std::unique_ptr<Splitter> make_unigram(const ModelFile& model);

}  // namespace halfbyte::models::sentencepiece

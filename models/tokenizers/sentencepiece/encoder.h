// Text to tokens and back with one SentencePiece model, without special tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/sentencepiece/normalizer.h"
#include "models/tokenizers/sentencepiece/splitter.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models::sentencepiece {

using TakeTokens = std::function<void(std::span<const TokenSpan>)>;

class Encoder {
 public:
  // Errors: as parse_model.
  Encoder(std::string_view bytes, const std::string& name);

  // Gives `take` the tokens of `text`, which is UTF-8, in order and in parts; spans count from `base`. Without
  // `adds_dummy_prefix`, no space is put before the text even where the model does. Memory does not grow with a text
  // that has places which no piece crosses.
  // Errors: kCorrupt where the model's rules add more than `allowance`.
  void encode(std::string_view text, std::size_t base, bool adds_dummy_prefix, Allowance& allowance,
              const TakeTokens& take) const;

  // Ids are pieces'. `drops_first_space`: as the model does where its texts begin.
  std::string decode(std::span<const std::int64_t> ids, bool drops_first_space) const;

  const ModelFile& model() const noexcept { return model_; }

 private:
  std::size_t last_cut(std::string_view text) const noexcept;

  const ModelFile model_;
  Normalizer normalizer_;
  std::unique_ptr<Normalizer> denormalizer_;
  std::unique_ptr<Splitter> splitter_;
};

}  // namespace halfbyte::models::sentencepiece

// A tokenizer put together from its components.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizers/huggingface/added_tokens.h"
#include "models/tokenizers/huggingface/decoder.h"
#include "models/tokenizers/huggingface/model.h"
#include "models/tokenizers/huggingface/normalizer.h"
#include "models/tokenizers/huggingface/post_processor.h"
#include "models/tokenizers/huggingface/pre_tokenizer.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models::huggingface {

struct Components {
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<Model> model;
  AddedTokens added;
  PostProcessing post;
  Decoders decoders;
  bool has_decoder = false;
};

// Time and memory are linear in the text; words go to the model one by one as they are found.
class Pipeline : public Tokenizer {
 public:
  explicit Pipeline(Components components);
  std::vector<TokenSpan> encode_spans(std::string_view text, SpecialTokens special) const override;
  TokenIds encode(std::string_view text, SpecialTokens special) const override;
  std::string decode(const TokenIds& ids, bool skip_special) const override;
  std::string piece(std::int64_t id) const override;
  bool is_special(std::int64_t id) const override { return parts_.added.is_special(spelling(id)); }
  std::optional<std::int64_t> id_of(std::string_view piece) const override;
  const TokenIds& prefix() const override { return parts_.post.prefix; }
  const TokenIds& suffix() const override { return parts_.post.suffix; }
  std::int64_t vocab_size() const override { return id_end_; }

 private:
  class Output;
  class Encoding;
  class Lease;
  void encode_into(Output& output, std::string_view text, SpecialTokens special) const;
  std::string_view spelling(std::int64_t id) const;

  Components parts_;
  std::int64_t id_end_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  // guarded by mutex_
};

}  // namespace halfbyte::models::huggingface

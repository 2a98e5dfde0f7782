#include "models/tokenizers/huggingface/tokenizer.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/pipeline.h"
#include "models/tokenizers/huggingface/put_together.h"

namespace halfbyte::models {
namespace huggingface {
namespace {

// The components that a file's JSON describes.
Components read_components(const JsonField& json, VocabularyLists lists) {
  Components parts;
  const JsonField model = json.at("model");
  if (const auto normalizer = json.find("normalizer")) parts.normalizers = read_normalizers(*normalizer);
  if (const auto cutting = json.find("pre_tokenizer"))
    parts.pre_tokenizers = read_pre_tokenizers(*cutting, takes_bytes(model, lists));
  parts.model = read_model(model, std::move(lists), parts.pre_tokenizers.ends_in_bytes);
  if (const auto tokens = json.find("added_tokens"))
    parts.added = AddedTokens(read_added_tokens(*tokens), parts.model->vocabulary(), parts.normalizers, tokens->path());
  if (const auto post = json.find("post_processor")) parts.post = read_post_processor(*post);
  if (const auto decoder = json.find("decoder")) {
    parts.decoders = read_decoders(*decoder);
    parts.has_decoder = true;
  }
  return parts;
}

}  // namespace

std::unique_ptr<Tokenizer> put_together(const nlohmann::json& json, VocabularyLists lists, const std::string& name) {
  auto parts = read_components(JsonField(json, name), std::move(lists));
  auto tokenizer = std::make_unique<Pipeline>(std::move(parts));
  for (const TokenIds* ids : {&tokenizer->prefix(), &tokenizer->suffix()})
    for (const std::int64_t id : *ids)
      if (id >= tokenizer->vocab_size())
        throw Error(ErrorCode::kCorrupt, name + ": post_processor: id " + std::to_string(id) + " is beyond the " +
                                             std::to_string(tokenizer->vocab_size()) + " tokens");
  return tokenizer;
}

}  // namespace huggingface

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file) {
  huggingface::VocabularyLists lists;
  const nlohmann::json json =
      huggingface::JsonReader(file.string(), &lists).read(huggingface::read_tokenizer_file(file));
  return huggingface::put_together(json, std::move(lists), file.string());
}

}  // namespace halfbyte::models

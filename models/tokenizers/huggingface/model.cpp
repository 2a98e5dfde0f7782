#include "models/tokenizers/huggingface/model.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/bpe.h"
#include "models/tokenizers/huggingface/byte_alphabet.h"
#include "models/tokenizers/huggingface/unigram.h"
#include "models/tokenizers/huggingface/word_models.h"

namespace halfbyte::models::huggingface {
namespace {

struct Source {
  const JsonField& json;
  VocabularyLists lists;
  bool words_are_bytes;
};

Vocabulary vocabulary_of(const Source& source) { return {source.lists.ids, source.json.path() + ": vocab"}; }

constexpr std::size_t kMaxAffixBytes = 256;  // "##" and "</w>" are usual; it is put to every character

std::string affix_of(const JsonField& json, const char* key) {
  const std::string affix = json.string_or(key, "");
  if (affix.size() > kMaxAffixBytes)
    json.fail(std::string(key) + " has " + std::to_string(affix.size()) + " bytes, and no model's more than " +
              std::to_string(kMaxAffixBytes));
  return affix;
}

std::unique_ptr<Model> read_bpe(const Source& source) {
  const JsonField& json = source.json;
  BpeOptions options;
  if (const auto unk = json.find("unk_token")) options.unk_token = unk->string();
  options.continuing_subword_prefix = affix_of(json, "continuing_subword_prefix");
  options.end_of_word_suffix = affix_of(json, "end_of_word_suffix");
  options.fuse_unk = json.boolean_or("fuse_unk", false);
  options.byte_fallback = json.boolean_or("byte_fallback", false);
  options.ignore_merges = json.boolean_or("ignore_merges", false);
  options.words_are_bytes = source.words_are_bytes;
  return std::make_unique<Bpe>(vocabulary_of(source), std::move(options), source.lists.merges, json.path());
}

std::unique_ptr<Model> read_unigram(const Source& source) {
  UnigramOptions options;
  if (const auto unk = source.json.find("unk_id")) options.unk_id = token_id(*unk);
  options.byte_fallback = source.json.boolean_or("byte_fallback", false);
  return std::make_unique<Unigram>(source.lists.scores, options, source.json.path());
}

std::unique_ptr<Model> read_wordpiece(const Source& source) {
  return std::make_unique<WordPiece>(vocabulary_of(source), source.json);
}

std::unique_ptr<Model> read_wordlevel(const Source& source) {
  return std::make_unique<WordLevel>(vocabulary_of(source), source.json);
}

struct Row {
  std::string_view type;
  std::unique_ptr<Model> (*read)(const Source&);
};

constexpr Row kRows[] = {
    {"BPE", read_bpe}, {"Unigram", read_unigram}, {"WordPiece", read_wordpiece}, {"WordLevel", read_wordlevel}};

// Old files leave it out.
std::string type_of(const JsonField& json, const VocabularyLists& lists) {
  if (const auto type = json.find("type")) return type->string();
  if (lists.has_merges) return "BPE";
  if (lists.is_scored) return "Unigram";
  return json.find("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

// Where a byte has no token and no unknown one stands in, the library's offsets depend on how the alphabet spells
// bytes.
bool has_every_byte(const JsonField& json, const VocabularyLists& lists) {
  std::unordered_set<std::string_view> missing(byte_alphabet().begin(), byte_alphabet().end());
  const std::string unk = json.string_or("unk_token", "");
  for (const auto& [token, id] : lists.ids) {
    if (!unk.empty() && token == unk) return true;
    missing.erase(token);
  }
  return missing.empty();
}

}  // namespace

bool takes_bytes(const JsonField& json, const VocabularyLists& lists) {
  return type_of(json, lists) == "BPE" && !json.boolean_or("byte_fallback", false) &&
         json.string_or("continuing_subword_prefix", "").empty() && json.string_or("end_of_word_suffix", "").empty() &&
         has_every_byte(json, lists);
}

std::unique_ptr<Model> read_model(const JsonField& json, VocabularyLists lists, bool words_are_bytes) {
  return row_of_type(json, type_of(json, lists), kRows, "models").read({json, std::move(lists), words_are_bytes});
}

std::vector<std::string_view> model_types() { return types_of(kRows); }

}  // namespace halfbyte::models::huggingface

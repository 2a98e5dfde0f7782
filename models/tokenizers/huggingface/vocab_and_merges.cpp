// vocab.json and merges.txt, told as the tokenizer.json that they stand for.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/patterns.h"
#include "models/tokenizers/huggingface/put_together.h"
#include "models/tokenizers/huggingface/tokenizer.h"

namespace halfbyte::models {
namespace {

using namespace huggingface;
using nlohmann::json;

json byte_level(bool adds_space, bool uses_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", adds_space}, {"trim_offsets", true}, {"use_regex", uses_regex}};
}

json qwen2_split() {
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kQwen2Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false, false)}}};
}

std::optional<json> read_if_there(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  return parse_json(read_tokenizer_file(file), file.string());
}

// {"vocab": ..., "merges": [...]}, as it stands inside a tokenizer.json.
void read_vocabulary(const std::filesystem::path& file, VocabularyLists& lists) {
  const std::string text = read_tokenizer_file(file);
  JsonReader("" + file.string(), &lists).read("{\"model\":{\"vocab\":" + text + "}}");
  if (lists.is_scored || lists.ids.empty())
    throw Error(ErrorCode::kCorrupt, file.string() + ": is no object of tokens and their ids");
}

void read_merges(const std::filesystem::path& file, VocabularyLists& lists) {
  const std::string text = read_tokenizer_file(file);
  lists.has_merges = true;
  for (std::size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view merge = std::string_view(text).substr(begin, end - begin);
    if (merge.ends_with('\r')) merge.remove_suffix(1);
    begin = end + 1;
    if (merge.starts_with("#version") || merge.empty()) continue;
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos)
      throw Error(ErrorCode::kCorrupt,
                  file.string() + ": line " + std::to_string(line) + " is not two tokens with one space between");
    lists.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
}

// Tokens by id: added_tokens.json is {"content": id}; tokenizer_config.json has all that is known of each.
using AddedById = std::map<std::uint32_t, json>;

json plain_token(const std::string& content, bool is_special) {
  return {{"content", content}, {"special", is_special}, {"normalized", false}};
}

void add_from_list(const std::filesystem::path& file, AddedById& added) {
  const auto list = read_if_there(file);
  if (!list) return;
  if (!list->is_object()) throw Error(ErrorCode::kCorrupt, file.string() + ": is no JSON object");
  for (const auto& [content, id] : list->items())
    added[token_id(JsonField(id, file.string() + ": " + printable(content)))] = plain_token(content, false);
}

std::uint32_t id_of_key(const std::string& key, const std::string& where) {
  const bool is_id = !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
  if (!is_id) throw Error(ErrorCode::kCorrupt, where + ": " + in_quotes(key) + " is no id");
  return static_cast<std::uint32_t>(std::stoul(key));
}

void add_from_config(const JsonField& config, AddedById& added) {
  const auto decoder = config.find("added_tokens_decoder");
  if (!decoder) return;
  for (const auto& [key, token] : decoder->members()) added[id_of_key(key, decoder->path())] = described_token(token);
}

// bos_token and its like: special where they are in the vocabulary or added.
void add_special(const JsonField& names, const VocabularyLists& lists, AddedById& added) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const auto value = names.find(key);
    if (!value) continue;
    const std::string content = value->json().is_object() ? value->at("content").string() : value->string();
    const auto known = std::find_if(added.begin(), added.end(),
                                    [&](const auto& entry) { return entry.second.value("content", "") == content; });
    if (known != added.end()) known->second["special"] = true;
    const auto in_model =
        std::find_if(lists.ids.begin(), lists.ids.end(), [&](const auto& e) { return e.first == content; });
    if (known == added.end() && in_model != lists.ids.end()) added[in_model->second] = plain_token(content, true);
  }
}

json added_tokens(const std::filesystem::path& directory, const JsonField& config, const VocabularyLists& lists) {
  AddedById added;
  add_from_list(directory / "added_tokens.json", added);
  add_from_config(config, added);
  add_special(config, lists, added);
  const auto names_file = directory / "special_tokens_map.json";
  if (const auto names = read_if_there(names_file)) add_special(JsonField(*names, names_file.string()), lists, added);
  json list = json::array();
  for (auto& [id, token] : added) {
    token["id"] = id;
    list.push_back(std::move(token));
  }
  return list;
}

}  // namespace

std::unique_ptr<Tokenizer> load_vocab_and_merges(const std::filesystem::path& directory) {
  VocabularyLists lists;
  read_vocabulary(directory / "vocab.json", lists);
  read_merges(directory / "merges.txt", lists);
  const auto config_file = directory / "tokenizer_config.json";
  const json config = read_if_there(config_file).value_or(json::object());
  const JsonField fields(config, config_file.string());
  const bool is_qwen2 = fields.string_or("tokenizer_class", "GPT2Tokenizer").starts_with("Qwen2");
  json description;
  description["added_tokens"] = added_tokens(directory, fields, lists);
  if (is_qwen2) description["normalizer"] = {{"type", "NFC"}};
  description["pre_tokenizer"] =
      is_qwen2 ? qwen2_split() : byte_level(fields.boolean_or("add_prefix_space", false), true);
  description["post_processor"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
  description["decoder"] = byte_level(true, true);
  description["model"] = {{"type", "BPE"}};
  return put_together(description, std::move(lists), (directory / "vocab.json").string());
}

}  // namespace halfbyte::models

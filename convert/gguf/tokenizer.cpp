// A checkpoint's tokenizer as GGUF's metadata have it.
#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/gguf/metadata.h"
#include "loader/files/file_tree.h"
#include "loader/files/formats/gguf/pre_tokenizers.h"
#include "loader/files/formats/gguf/tokenizer.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"
#include "models/tokenizers/sentencepiece/model_fields.h"

namespace halfbyte::convert {
namespace {

namespace fs = files::fs;
using Kind = files::GgufVocabulary::Kind;
using models::sentencepiece::Field;
using models::sentencepiece::Fields;
using nlohmann::json;

constexpr std::int64_t kMaxTokens = 1 << 21;  // ids beyond are no vocabulary's
constexpr files::JsonLimits kTokenizerLimits{.max_bytes = std::uint64_t{1} << 28};

// A file beside the checkpoint, or one that its source implies; nothing when there is none.
std::optional<std::string> file_bytes(const files::Checkpoint& source, const std::string& name) {
  if (const auto made = source.generated_files.find(name); made != source.generated_files.end()) return made->second();
  if (!files::is_regular_file(source.directory / name)) return std::nullopt;
  return files::read_text(source.directory / name, kTokenizerLimits.max_bytes);
}

json json_or_empty(const files::Checkpoint& source, const std::string& name) {
  const auto text = file_bytes(source, name);
  if (!text) return json::object();
  json out = files::parse_json<json>(*text, name, kTokenizerLimits);
  if (!out.is_object()) throw Error(ErrorCode::kCorrupt, name + ": not a JSON object");
  return out;
}

struct Vocabulary : files::GgufVocabulary {
  std::int64_t bos = -1, eos = -1, unknown = -1, padding = -1;
  bool adds_space = true;

  void put(std::int64_t id, std::string token, Kind kind) {
    if (id < 0 || id > kMaxTokens) throw Error(ErrorCode::kCorrupt, "a token's id is " + std::to_string(id));
    const auto at = static_cast<std::size_t>(id);
    if (at >= tokens.size()) resize(at + 1);
    tokens[at] = std::move(token);
    kinds[at] = kind;
  }
  // What is between and behind the tokens: names that no text becomes.
  void resize(std::size_t count) {
    while (tokens.size() < count) {
      tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
      kinds.push_back(Kind::kUnused);
      scores.push_back(-10000.0F);
    }
  }
};

void add_piece(std::string_view message, Vocabulary& out) {
  std::string text;
  float score = 0;
  auto kind = Kind::kNormal;
  Fields fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 1) text = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3 && field.value >= 1 && field.value <= 6) kind = static_cast<Kind>(field.value);
  }
  out.tokens.push_back(std::move(text));
  out.scores.push_back(score);
  out.kinds.push_back(kind);
}

void add_trainer(std::string_view message, Vocabulary& out) {
  Fields fields(message);
  for (Field field; fields.next(field);) {
    const auto id = static_cast<std::int64_t>(static_cast<std::int32_t>(field.value));
    if (field.number == 3 && field.value != 1 && field.value != 2)
      throw Error(ErrorCode::kUnsupported, "tokenizer.model: of words or characters, which GGUF does not hold");
    if (field.number == 40) out.unknown = id;
    if (field.number == 41) out.bos = id;
    if (field.number == 42) out.eos = id;
    if (field.number == 43) out.padding = id;
  }
}

void add_normalizer(std::string_view message, Vocabulary& out) {
  Fields fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 3) out.adds_space = field.value != 0;
  }
}

Vocabulary read_sentencepiece(std::string_view bytes) try {
  Vocabulary out;
  out.unknown = 0, out.bos = 1, out.eos = 2;  // where the model says nothing
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (field.number == 1) add_piece(field.bytes, out);
    if (field.number == 2) add_trainer(field.bytes, out);
    if (field.number == 3) add_normalizer(field.bytes, out);
  }
  return out;
} catch (const models::sentencepiece::NotAModel&) {
  throw Error(ErrorCode::kCorrupt, "tokenizer.model: is not a SentencePiece model; copy it again");
}

void add_added_tokens(const json& list, Vocabulary& out) {
  for (const json& token : list) {
    const bool is_special = token.value("special", false);
    out.put(token.at("id").get<std::int64_t>(), token.at("content").get<std::string>(),
            is_special ? Kind::kControl : Kind::kUserDefined);
  }
}

// Ends of lines as an expression spells them, not as themselves: files have either.
std::string spelled(const std::string& pattern) {
  std::string out;
  for (const char c : pattern) out += c == '\r' ? "\\r" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

// Whether a step of the pre-tokenizer has this pattern.
bool has_pattern(const json& node, std::string_view pattern) {
  if (node.is_object() && node.value("type", "") == "Split" && node.contains("pattern"))
    return node["pattern"].is_object() && spelled(node["pattern"].value("Regex", "")) == pattern;
  if (!node.is_object() || !node.contains("pretokenizers")) return false;
  return std::ranges::any_of(node["pretokenizers"], [&](const json& step) { return has_pattern(step, pattern); });
}

bool has_patterns(const json& node, const files::GgufPreTokenizer& row) {
  return has_pattern(node, row.pattern) &&
         std::ranges::all_of(row.before, [&](std::string_view pattern) { return has_pattern(node, pattern); });
}

bool is_gpt2(const json& node) {
  return node.is_object() && node.value("type", "") == "ByteLevel" && node.value("use_regex", true);
}

// Digits one by one, then GPT-2's own.
bool splits_digits(const json& node) {
  if (!node.is_object() || node.value("type", "") != "Sequence" || !node.contains("pretokenizers")) return false;
  const json& steps = node["pretokenizers"];
  if (!steps.is_array() || steps.size() != 2 || !steps[0].is_object() || !is_gpt2(steps[1])) return false;
  const bool is_digits = steps[0].value("type", "") == "Digits" && steps[0].value("individual_digits", false);
  return is_digits || has_pattern(steps[0], R"(\p{N})");
}

// Of those without a pattern of their own; empty: none.
std::string_view usual_name(const json& node) {
  const bool has_digits = splits_digits(node);
  if (!has_digits && !is_gpt2(node)) return {};
  return std::ranges::find_if(
             files::pre_tokenizers(),
             [&](const files::GgufPreTokenizer& row) { return row.pattern.empty() && row.splits_digits == has_digits; })
      ->name;
}

std::string pre_tokenizer_name(const json& tokenizer) {
  const json& node = tokenizer.at("pre_tokenizer");
  const bool ignores_merges = tokenizer.at("model").value("ignore_merges", false);
  std::string name(usual_name(node));
  for (const files::GgufPreTokenizer& row : files::pre_tokenizers()) {
    if (row.pattern.empty() || !has_patterns(node, row)) continue;
    if (name.empty() || row.ignores_merges == ignores_merges) name = row.name;
    if (row.ignores_merges == ignores_merges) break;
  }
  if (!name.empty()) return name;
  throw Error(ErrorCode::kUnsupported, "tokenizer.json: splits texts in a way that GGUF has no name for");
}

std::vector<std::string> merges_of(const json& model) {
  std::vector<std::string> out;
  for (const json& merge : model.at("merges")) {
    out.push_back(merge.is_string() ? merge.get<std::string>()
                                    : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  return out;
}

std::int64_t id_of(const Vocabulary& vocabulary, const json& token) {
  const json& text = token.is_object() && token.contains("content") ? token["content"] : token;
  if (!text.is_string()) return -1;
  const auto found = std::ranges::find(vocabulary.tokens, text.get<std::string>());
  return found == vocabulary.tokens.end() ? -1 : found - vocabulary.tokens.begin();
}

std::int64_t first_id(const json& config, const char* key) {
  if (!config.contains(key)) return -1;
  const json& value = config[key].is_array() && !config[key].empty() ? config[key][0] : config[key];
  return value.is_number_integer() ? value.get<std::int64_t>() : -1;
}

void add_common(const Vocabulary& vocabulary, const json& config, bool adds_bos, GgufMetadata& out) {
  out.texts("tokenizer.ggml.tokens", vocabulary.tokens);
  std::vector<std::int32_t> kinds;
  for (const Kind kind : vocabulary.kinds) kinds.push_back(static_cast<std::int32_t>(kind));
  out.integers("tokenizer.ggml.token_type", kinds);
  for (const auto& [key, id] : {std::pair("bos", vocabulary.bos), std::pair("eos", vocabulary.eos),
                                std::pair("unknown", vocabulary.unknown), std::pair("padding", vocabulary.padding)}) {
    if (id >= 0) out.number(std::string("tokenizer.ggml.") + key + "_token_id", id);
  }
  const json& bos = config.contains("add_bos_token") ? config["add_bos_token"] : json();
  const json& eos = config.contains("add_eos_token") ? config["add_eos_token"] : json();
  out.flag("tokenizer.ggml.add_bos_token", bos.is_boolean() ? bos.get<bool>() : adds_bos);
  out.flag("tokenizer.ggml.add_eos_token", eos.is_boolean() && eos.get<bool>());
  if (config.contains("chat_template") && config["chat_template"].is_string())
    out.text("tokenizer.chat_template", config["chat_template"].get<std::string>());
}

// The checkpoint's configuration wins over what the tokenizer's files say.
void add_ids(const files::Checkpoint& source, Vocabulary& vocabulary) {
  const json config = source.has_config() ? json(*source.config) : json::object();
  if (const auto id = first_id(config, "bos_token_id"); id >= 0) vocabulary.bos = id;
  if (const auto id = first_id(config, "eos_token_id"); id >= 0) vocabulary.eos = id;
}

void add_sentencepiece(const files::Checkpoint& source, const std::string& model, std::size_t vocab_size,
                       GgufMetadata& out) {
  Vocabulary vocabulary = read_sentencepiece(model);
  const json config = json_or_empty(source, "tokenizer_config.json");
  if (config.contains("added_tokens_decoder") && config["added_tokens_decoder"].is_object()) {
    for (const auto& [id, token] : config["added_tokens_decoder"].items()) {
      std::size_t at = 0;
      const bool is_id = std::from_chars(id.data(), id.data() + id.size(), at).ec == std::errc();
      if (!is_id || at < vocabulary.tokens.size() || !token.is_object()) continue;
      add_added_tokens(
          json::array(
              {{{"id", at}, {"content", token.value("content", "")}, {"special", token.value("special", false)}}}),
          vocabulary);
    }
  }
  vocabulary.resize(vocab_size);
  add_ids(source, vocabulary);
  out.text("tokenizer.ggml.model", "llama");
  out.text("tokenizer.ggml.pre", "default");
  out.reals("tokenizer.ggml.scores", vocabulary.scores);
  out.flag("tokenizer.ggml.add_space_prefix", vocabulary.adds_space);
  add_common(vocabulary, config, true, out);
}

// The token that the post-processor puts before a text, or null.
json template_begin(const json& node) {
  if (!node.is_object()) return json();
  if (node.contains("processors")) {
    for (const json& step : node["processors"]) {
      if (json found = template_begin(step); !found.is_null()) return found;
    }
  }
  if (!node.contains("single") || !node["single"].is_array() || node["single"].empty()) return json();
  const json& first = node["single"][0];
  return first.is_object() && first.contains("SpecialToken") ? first["SpecialToken"].at("id") : json();
}

void add_byte_level(const files::Checkpoint& source, const json& tokenizer, std::size_t vocab_size, GgufMetadata& out) {
  const json& model = tokenizer.at("model");
  if (model.value("type", "BPE") != "BPE" || model.value("byte_fallback", false))
    throw Error(ErrorCode::kUnsupported, "tokenizer.json: is no byte-level BPE, the one kind that is written as GGUF");
  Vocabulary vocabulary;
  for (const auto& [token, id] : model.at("vocab").items())
    vocabulary.put(id.get<std::int64_t>(), token, Kind::kNormal);
  if (tokenizer.contains("added_tokens")) add_added_tokens(tokenizer["added_tokens"], vocabulary);
  vocabulary.resize(vocab_size);
  const json config = json_or_empty(source, "tokenizer_config.json");
  const json begin = tokenizer.contains("post_processor") ? template_begin(tokenizer["post_processor"]) : json();
  vocabulary.bos = config.contains("bos_token") ? id_of(vocabulary, config["bos_token"]) : -1;
  if (!begin.is_null()) vocabulary.bos = id_of(vocabulary, begin);
  vocabulary.eos = config.contains("eos_token") ? id_of(vocabulary, config["eos_token"]) : -1;
  add_ids(source, vocabulary);
  out.text("tokenizer.ggml.model", "gpt2");
  out.text("tokenizer.ggml.pre", pre_tokenizer_name(tokenizer));
  out.texts("tokenizer.ggml.merges", merges_of(model));
  add_common(vocabulary, config, !begin.is_null(), out);
}

}  // namespace

void add_tokenizer(const files::Checkpoint& source, std::int64_t vocab_size, GgufMetadata& out,
                   std::vector<std::string>& notes) try {
  const auto size = static_cast<std::size_t>(vocab_size);
  const auto model = file_bytes(source, "tokenizer.model");
  const auto tokenizer = file_bytes(source, "tokenizer.json");
  if (model) {
    add_sentencepiece(source, *model, size, out);
  } else if (tokenizer) {
    add_byte_level(source, files::parse_json<json>(*tokenizer, "tokenizer.json", kTokenizerLimits), size, out);
  } else {
    notes.emplace_back("there is no tokenizer.json or tokenizer.model: llama.cpp will take token ids only");
    out.text("tokenizer.ggml.model", "none");
  }
} catch (const json::exception& error) {
  throw Error(ErrorCode::kCorrupt, "the tokenizer's files: " + files::json_problem(error));
}

}  // namespace halfbyte::convert

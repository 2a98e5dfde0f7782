// GLM-4's tokenizer.model: lines of a token's bytes in base64 and its rank, as tiktoken has them, told as a
// tokenizer.json.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/byte_alphabet.h"
#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/put_together.h"
#include "models/tokenizers/huggingface/tokenizer.h"

namespace halfbyte::models {
namespace {

using namespace huggingface;
using nlohmann::json;

// Source: ChatGLM4Tokenizer of huggingface.co/THUDM/glm-4-9b.
constexpr std::string_view kGlm4Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::size_t kMaxPartedBytes = 1024;  // of longer tokens only the first ways to part them; none is as long
constexpr const char* kGlm4Prefix[] = {"[gMASK]", "<sop>"};

struct RankedToken {
  std::string bytes;
  std::uint32_t rank;
};

int base64_value(char c) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::size_t at = kDigits.find(c);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  text.remove_suffix(text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0);
  std::string out;
  unsigned bits = 0;
  unsigned held = 0;  // bits
  for (const char c : text) {
    const int value = base64_value(c);
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<unsigned>(value)) & 0xFFFF;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out += static_cast<char>(bits >> held & 0xFF);
  }
  return out;
}

// "IQ== 0"
std::optional<RankedToken> token_of_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = from_base64(line.substr(0, space));
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
  if (!bytes || error != std::errc() || end != line.data() + line.size() || rank > 1 << 24) return std::nullopt;
  return RankedToken{std::move(*bytes), rank};
}

std::vector<RankedToken> read_tokens(const std::string& text, const std::string& name) {
  std::vector<RankedToken> tokens;
  for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    auto token = token_of_line(line);
    if (!token)
      throw Error(ErrorCode::kCorrupt,
                  name + ": line " + std::to_string(number) + " is not a token in base64 and its rank");
    tokens.push_back(std::move(*token));
  }
  std::ranges::stable_sort(tokens, {}, &RankedToken::rank);
  return tokens;
}

std::string in_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += byte_alphabet()[static_cast<unsigned char>(c)];
  return text;
}

// Of all the ways to part tokens: the text is so many times the tokens' own, and these bytes. GLM-4's is 5 times.
constexpr std::size_t kMergesPerByte = 32;
constexpr std::size_t kMergesAlways = std::size_t{1} << 24;

// A token is made of any two tokens that it is the text of, at its rank: all ways to part it are merges, in order of
// rank. Errors: kCorrupt when tokens of tokens of tokens make too much of it.
VocabularyLists lists_of(const std::vector<RankedToken>& tokens, const std::string& name) {
  std::size_t budget = kMergesAlways;
  for (const RankedToken& token : tokens) budget += kMergesPerByte * token.bytes.size();
  std::unordered_map<std::string_view, std::uint32_t> ranks;
  for (const RankedToken& token : tokens) ranks.emplace(token.bytes, token.rank);
  VocabularyLists lists;
  lists.has_merges = true;
  for (const auto& [bytes, rank] : tokens) {
    lists.ids.emplace_back(in_alphabet(bytes), rank);
    for (std::size_t size = 1; size < std::min(bytes.size(), kMaxPartedBytes); ++size) {
      const std::string_view left = std::string_view(bytes).substr(0, size);
      const std::string_view right = std::string_view(bytes).substr(size);
      if (!ranks.contains(left) || !ranks.contains(right)) continue;
      if (bytes.size() > budget)
        throw Error(ErrorCode::kCorrupt, name + ": its tokens can be parted into others in more ways than any model's");
      budget -= bytes.size();
      lists.merges.emplace_back(in_alphabet(left), in_alphabet(right));
    }
  }
  return lists;
}

json added_tokens(const JsonField& config) {
  json list = json::array();
  const auto decoder = config.find("added_tokens_decoder");
  if (!decoder) return list;
  for (const auto& [key, token] : decoder->members()) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) token.fail("is no token, which has an id");
    list.push_back(described_token(token));
    list.back()["id"] = id;
    list.back()["special"] = true;
  }
  return list;
}

// [gMASK] <sop> before every text.
json prefix_template(const json& added, const JsonField& config) {
  json single = json::array();
  json tokens = json::object();
  for (const char* name : kGlm4Prefix) {
    const auto known =
        std::find_if(added.begin(), added.end(), [&](const json& token) { return token.value("content", "") == name; });
    if (known == added.end())
      config.fail(std::string("added_tokens_decoder lacks ") + name + ", which GLM-4's texts begin with");
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {(*known)["id"]}}, {"tokens", {name}}};
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", tokens}};
}

}  // namespace

bool is_ranked_tokens(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;
  const std::string text = read_tokenizer_file(file);
  return token_of_line(std::string_view(text).substr(0, text.find('\n'))).has_value();
}

std::unique_ptr<Tokenizer> load_ranked_tokens(const std::filesystem::path& file) {
  const std::string name = file.string();
  const auto config_file = file.parent_path() / "tokenizer_config.json";
  if (!std::filesystem::exists(config_file)) {
    throw Error(ErrorCode::kNotFound,
                name + ": is a list of tokens in base64, which says nothing of special tokens; copy " +
                    "tokenizer_config.json, too");
  }
  const json config = parse_json(read_tokenizer_file(config_file), config_file.string());
  const JsonField fields(config, config_file.string());
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kGlm4Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  json description;
  description["added_tokens"] = added_tokens(fields);
  description["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, level}}};
  description["post_processor"] = prefix_template(description["added_tokens"], fields);
  description["decoder"] = level;
  description["model"] = {{"type", "BPE"}, {"ignore_merges", true}};
  return put_together(description, lists_of(read_tokens(read_tokenizer_file(file), name), name), name);
}

}  // namespace halfbyte::models

#include "models/tokenizers/sentencepiece/config.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/allowance.h"
#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/whole_file.h"

namespace halfbyte::models::sentencepiece {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMaxJsonBytes = std::uintmax_t{1} << 26;
constexpr std::int64_t kMaxId = 1 << 24;  // no vocabulary is as large
constexpr std::string_view kChatGlmClasses[] = {"ChatGLMTokenizer", "ChatGLM4Tokenizer"};

class File {
 public:
  explicit File(const std::filesystem::path& path) : name_(path.string()), tree_(json::object()) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return;
    tree_ = huggingface::json_or_null(read_whole_file(path, kMaxJsonBytes));
    if (!tree_.is_object()) fail("is not a JSON object");
  }

  [[noreturn]] void fail(const std::string& problem) const { throw Error(ErrorCode::kCorrupt, name_ + ": " + problem); }

  const json* find(const char* key) const {
    const auto found = tree_.find(key);
    return found == tree_.end() || found->is_null() ? nullptr : &*found;
  }

  void read_flag(const char* key, bool& flag) const {
    const json* value = find(key);
    if (value && value->is_boolean()) flag = value->get<bool>();
  }

  // "</s>", or {"content": "</s>", ...}.
  std::optional<std::string> token(const char* key) const {
    const json* value = find(key);
    return value ? text_of(*value) : std::nullopt;
  }

  static std::optional<std::string> text_of(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (!value.is_object()) return std::nullopt;
    const auto content = value.find("content");
    return content != value.end() && content->is_string() ? std::optional(content->get<std::string>()) : std::nullopt;
  }

  void check_token(std::int64_t id, const std::string& text) const {
    if (id < 0 || id >= kMaxId) fail("has an added token with id " + std::to_string(id) + ", which no vocabulary has");
    if (text.size() > kMaxTokenBytes) fail("the token with id " + std::to_string(id) + " is longer than any model's");
  }

  const json& tree() const { return tree_; }

 private:
  std::string name_;
  json tree_;
};

bool flag_of(const json& token, const char* key) {
  const auto found = token.find(key);
  return found != token.end() && found->is_boolean() && found->get<bool>();
}

// {"32000": {"content": "<|im_end|>", "lstrip": false, ...}}
void read_added_tokens_decoder(const File& file, Config& config) {
  const json* tokens = file.find("added_tokens_decoder");
  if (!tokens || !tokens->is_object()) return;
  for (const auto& [key, token] : tokens->items()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const auto text = File::text_of(token);
    if (error != std::errc() || end != key.data() + key.size() || !text || text->empty())
      file.fail("added_tokens_decoder has an entry that is no token: " + printable(key, 32));
    file.check_token(id, *text);
    config.added[id] = {.text = *text,
                        .is_special = flag_of(token, "special"),
                        .strips_left = flag_of(token, "lstrip"),
                        .strips_right = flag_of(token, "rstrip"),
                        .is_single_word = flag_of(token, "single_word")};
  }
}

// {"<|im_end|>": 32000}; what added_tokens_decoder says of an id counts.
void read_added_tokens(const File& file, Config& config) {
  for (const auto& [text, id] : file.tree().items()) {
    if (!id.is_number_integer() || text.empty()) file.fail("has a token without an id: " + printable(text, 32));
    file.check_token(id.get<std::int64_t>(), text);
    config.added.try_emplace(id.get<std::int64_t>(), AddedToken{.text = text});
  }
}

void read_special_tokens(const File& file, Config& config) {
  for (auto [key, token] :
       {std::pair("bos_token", &config.bos), {"eos_token", &config.eos}, {"unk_token", &config.unknown}}) {
    if (!*token) *token = file.token(key);
  }
  if (auto pad = file.token("pad_token")) config.special.push_back(std::move(*pad));
  const json* more = file.find("additional_special_tokens");
  if (!more || !more->is_array()) return;
  for (const json& token : *more) {
    if (auto text = File::text_of(token)) config.special.push_back(std::move(*text));
  }
}

bool is_chatglm(const File& tokenizer_config, const File& model_config) {
  const auto name = tokenizer_config.token("tokenizer_class");
  if (name) return std::ranges::find(kChatGlmClasses, *name) != std::end(kChatGlmClasses);
  return model_config.token("model_type") == "chatglm";
}

// Special tokens are those named so, too.
void mark_special(Config& config) {
  std::vector<std::string> names = config.special;
  for (const auto& token : {config.bos, config.eos, config.unknown}) {
    if (token) names.push_back(*token);
  }
  std::ranges::sort(names);
  for (auto& [id, token] : config.added) {
    if (std::ranges::binary_search(names, token.text)) token.is_special = true;
  }
}

}  // namespace

Config read_config(const std::filesystem::path& path) {
  const File tokenizer_config(path);
  const File model_config(path.parent_path() / "config.json");
  Config config;
  config.is_chatglm = is_chatglm(tokenizer_config, model_config);
  tokenizer_config.read_flag("add_bos_token", config.adds_bos);
  tokenizer_config.read_flag("add_eos_token", config.adds_eos);
  tokenizer_config.read_flag("legacy", config.is_legacy);
  tokenizer_config.read_flag("add_prefix_space", config.adds_prefix_space);
  read_added_tokens_decoder(tokenizer_config, config);
  read_added_tokens(File(path.parent_path() / "added_tokens.json"), config);
  read_special_tokens(tokenizer_config, config);
  read_special_tokens(File(path.parent_path() / "special_tokens_map.json"), config);
  mark_special(config);
  return config;
}

}  // namespace halfbyte::models::sentencepiece

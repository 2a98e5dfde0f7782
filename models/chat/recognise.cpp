// Which family a checkpoint's chat template belongs to, by its text or by the checkpoint's other files.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/chat_template.h"
#include "models/json/printable.h"
#include "models/tokenizers/allowance.h"
#include "models/tokenizers/huggingface/json.h"

namespace halfbyte::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 26;  // tokenizer_config.json may list all added tokens
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

std::optional<std::string> read_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  if (!fs::is_regular_file(path, ignored)) throw Error(ErrorCode::kCorrupt, path.string() + ": is not a regular file");
  if (fs::file_size(path, ignored) > kMaxFileBytes)
    throw Error(ErrorCode::kCorrupt, path.string() + ": has more bytes than any file of its kind");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, path.string() + ": cannot be read");
  return std::string{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// An object; an empty one without the file.
json read_object(const fs::path& path) {
  const auto text = read_file(path);
  if (!text) return json::object();
  json value = huggingface::json_or_null(*text);
  if (!value.is_object()) throw Error(ErrorCode::kCorrupt, path.string() + ": is not a JSON object");
  return value;
}

const json* find(const json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() ? nullptr : &*at;
}

std::string string_at(const json& object, const char* key) {
  const json* value = find(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

// A text, or a list of named ones.
std::string template_in(const json& object) {
  const json* value = find(object, "chat_template");
  if (!value || !value->is_array()) return string_at(object, "chat_template");
  std::string chosen;
  for (const json& entry : *value) {
    if (chosen.empty() || string_at(entry, "name") == "default") chosen = string_at(entry, "template");
  }
  return chosen;
}

std::string template_text(const fs::path& directory, const json& tokenizer_config) {
  std::string text = read_file(directory / "chat_template.jinja").value_or("");
  if (text.empty()) text = template_in(read_object(directory / "chat_template.json"));
  if (text.empty()) text = template_in(tokenizer_config);
  if (text.size() <= kMaxTextBytes) return text;
  throw Error(ErrorCode::kCorrupt,
              directory.string() + ": its chat template has " + std::to_string(text.size()) + " bytes, more than any");
}

template <class WordList>
bool stand_in(const WordList& words, std::string_view text) {
  return std::ranges::all_of(words, [&](auto word) { return text.find(word) != std::string_view::npos; });
}

template <class WordList>
bool stands_one_in(const WordList& words, std::string_view text) {
  return std::ranges::any_of(words,
                             [&](auto word) { return !word.empty() && text.find(word) != std::string_view::npos; });
}

bool contains(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

bool fits(const ChatFamily& family, const std::string& model_type, const Tokenizer& tokenizer) {
  const auto is_type = [&](auto type) { return !type.empty() && (type == "*" || type == model_type); };
  const auto has = [&](auto token) { return token.empty() || tokenizer.id_of(token); };
  const auto lacks = [&](auto token) { return token.empty() || !tokenizer.id_of(token); };
  return std::ranges::any_of(family.model_types, is_type) && std::ranges::all_of(family.tokens, has) &&
         std::ranges::all_of(family.no_tokens, lacks);
}

// In a template's text a line break is one, or the two characters of its escape.
std::string with_line_breaks(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '\\' && i + 1 < text.size() && text[i + 1] == 'n';
    out += is_escape ? '\n' : text[i];
    i += is_escape;
  }
  return out;
}

// "<|im_start|>system\nYou are ...<|im_end|>" within one string of the template: what it says when nobody else does.
std::optional<std::string> default_system_in(std::string_view text) {
  constexpr std::string_view kBegin = "<|im_start|>system\n";
  constexpr std::string_view kEnd = "<|im_end|>";
  std::size_t end = 0;  // the first that is not before what is looked at: looked for once, however many begin
  for (std::size_t at = text.find(kBegin); at != text.npos; at = text.find(kBegin, at + 1)) {
    const char quote = at > 0 ? text[at - 1] : '\0';
    const std::size_t begin = at + kBegin.size();
    if (end < begin) end = text.find(kEnd, begin);
    if (end == text.npos) break;
    const std::string_view said = text.substr(begin, end - begin);
    if (!said.empty() && said.find(quote) == said.npos) return std::string(said);
  }
  return std::nullopt;
}

std::string today() {
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  const std::string day = std::to_string(local.tm_mday);
  return (day.size() < 2 ? "0" : "") + day + " " + kMonths[local.tm_mon] + " " + std::to_string(1900 + local.tm_year);
}

// A special token of tokenizer_config.json: its spelling, or an object that has it. Nothing: not said.
std::optional<std::string> special_token(const json& config, const char* key) {
  const json* value = find(config, key);
  if (!value) return std::nullopt;
  if (value->is_object()) return string_at(*value, "content");
  return value->is_string() ? value->get<std::string>() : "";
}

const ChatFamily& choose(const fs::path& directory, const std::string& text, const Tokenizer& tokenizer) {
  if (!text.empty()) {
    if (const ChatFamily* family = recognise_chat_template(text)) return *family;
    throw Error(ErrorCode::kUnsupported, directory.string() +
                                             ": its chat template is none that this version knows, and a checkpoint's "
                                             "own code is not run; say " +
                                             Option::kChatTemplate + " with one of " + chat_family_names());
  }
  const std::string type = string_at(read_object(directory / "config.json"), "model_type");
  for (const ChatFamily& family : chat_families()) {
    if (fits(family, type, tokenizer)) return family;
  }
  throw Error(ErrorCode::kUnsupported,
              directory.string() + ": has no chat template (is it a base model?), and model_type " + in_quotes(type) +
                  " with its special tokens tells none; say " + Option::kChatTemplate + " chatml, or another of " +
                  chat_family_names() + "; or have it continue texts: generate needs no template");
}

}  // namespace

std::string chat_family_names() {
  std::string names;
  for (const ChatFamily& family : chat_families()) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

const ChatFamily* recognise_chat_template(std::string_view raw) {
  const std::string text = with_line_breaks(raw);
  for (const ChatFamily& family : chat_families()) {
    if (stand_in(family.marks, text) && !stands_one_in(family.no_marks, text)) return &family;
  }
  return nullptr;
}

ChatTemplate chat_template_of(const ChatFamily& family, std::string_view raw) {
  ChatTemplate out(family);
  const std::string text = with_line_breaks(raw);
  const std::string tail = text.substr(std::min(text.rfind("add_generation_prompt"), text.size()));
  if (family.start.empty() || family.start == "{bos}") {
    const bool has_own = family.user.before.starts_with("{bos}");
    out.start = contains(text, "bos_token") && !has_own ? "{bos}" : "";
  }
  const bool trims = contains(text, "|trim") || contains(text, "| trim") || contains(text, ".strip()");
  out.user.is_trimmed = out.user.is_trimmed && trims;
  out.assistant.is_trimmed = out.assistant.is_trimmed && trims;
  if (const auto said = default_system_in(text)) out.default_system = said;
  if (contains(tail, "<|im_start|>assistant\n<think>\n")) out.answer = "<|im_start|>assistant\n<think>\n";
  if (!family.answer_in_some.empty() && contains(tail, family.answer_in_some)) out.answer = family.answer_in_some;
  if (contains(text, "loop.first and system_message")) out.system_place = SystemPlace::kFirstUser;
  if (contains(text, "loop.last and system_message")) out.system_place = SystemPlace::kLastUser;
  if (contains(text, "eos_token + ' '") && family.assistant.after == "{eos}") out.assistant.after = "{eos} ";
  if (contains(text, "strftime_now")) out.date = today();
  out.skips_empty = contains(text, "if item['content']");
  out.skips_empty_system = out.skips_empty || contains(text, "'system' and message['content']");
  return out;
}

ChatTemplate load_chat_template(const fs::path& directory, const Tokenizer& tokenizer, const ChatChoice& choice) {
  const json config = read_object(directory / "tokenizer_config.json");
  const std::string text = template_text(directory, config);
  const ChatFamily* named = choice.name.empty() ? nullptr : find_chat_family(choice.name);
  if (!choice.name.empty() && !named) {
    throw Error(ErrorCode::kInvalidArgument,
                "no chat template is called " + in_quotes(choice.name) + "; known are " + chat_family_names());
  }
  const ChatFamily& family = named ? *named : choose(directory, text, tokenizer);
  ChatTemplate out = recognise_chat_template(text) == &family ? chat_template_of(family, text) : ChatTemplate(family);
  const json map = read_object(directory / "special_tokens_map.json");
  for (const auto& [key, spelling] : {std::pair{"bos_token", &out.bos}, std::pair{"eos_token", &out.eos}}) {
    auto said = special_token(config, key);
    if (!said) said = special_token(map, key);
    if (said && said->size() > kMaxTokenBytes)
      throw Error(ErrorCode::kCorrupt, directory.string() + ": its " + key + " is longer than any model's token");
    if (said) *spelling = *said;
  }
  if (!choice.date.empty()) out.date = choice.date;
  return out;
}

TokenIds generation_stop_tokens(const fs::path& directory) {
  const fs::path path = directory / "generation_config.json";
  const json config = read_object(path);
  const json* value = find(config, "eos_token_id");
  if (!value || value->is_null()) return {};
  TokenIds ids;
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    if (!id.is_number_integer())
      throw Error(ErrorCode::kCorrupt, path.string() + ": \"eos_token_id\" has something that is no token id");
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

}  // namespace halfbyte::models

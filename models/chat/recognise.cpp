// Which family a checkpoint's chat template belongs to, by its text or by the checkpoint's other files.
#include <algorithm>
#include <ctime>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/chat_template.h"
#include "models/chat/jinja_template.h"
#include "models/chat/template_files.h"
#include "models/json/printable.h"

namespace halfbyte::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

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

// Of a checkpoint without a template.
const ChatFamily& choose(const fs::path& directory, const Tokenizer& tokenizer) {
  const std::string type = string_member(read_object(directory / "config.json"), "model_type");
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

FamilyTemplate family_template_of(const ChatFamily& family, std::string_view raw) {
  FamilyTemplate out(family);
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

namespace {

// The row itself, or with what the checkpoint's own text says of it.
FamilyTemplate family_template(const ChatFamily& family, const std::string& text, const std::vector<NamedToken>& tokens,
                               const ChatChoice& choice) {
  if (!choice.arguments->is_null() && !choice.arguments->empty()) {
    throw Error(ErrorCode::kUnsupported,
                "switches are for a checkpoint's own chat template, and " + std::string(family.name) + " is none");
  }
  FamilyTemplate out =
      recognise_chat_template(text) == &family ? family_template_of(family, text) : FamilyTemplate(family);
  for (const NamedToken& token : tokens) {
    if (token.name == "bos_token") out.bos = token.spelling;
    if (token.name == "eos_token") out.eos = token.spelling;
  }
  if (!choice.date.empty()) out.date = choice.date;
  return out;
}

// The checkpoint's own. What it cannot do is said with what can be done.
std::shared_ptr<const JinjaTemplate> own_template(const std::vector<NamedTemplate>& templates,
                                                  const fs::path& directory, std::vector<NamedToken> tokens,
                                                  const ChatChoice& choice) {
  if (!choice.arguments->is_null() && !choice.arguments->is_object())
    throw Error(ErrorCode::kInvalidArgument, "the switches of a chat template are an object");
  JinjaSetting setting{.tokens = std::move(tokens),
                       .arguments = choice.arguments,
                       .date = choice.date,
                       .family = recognise_chat_template(templates.front().text)};
  try {
    return std::make_shared<const JinjaTemplate>(templates, directory.string(), std::move(setting));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    throw Error(ErrorCode::kUnsupported, std::string(error.what()) + "; or say " + Option::kChatTemplate +
                                             " with one of " + chat_family_names());
  }
}

}  // namespace

ChatTemplate load_chat_template(const fs::path& directory, const Tokenizer& tokenizer, const ChatChoice& choice) {
  const json config = read_object(directory / "tokenizer_config.json");
  const std::vector<NamedTemplate> templates = templates_of(directory, config);
  const ChatFamily* named = choice.name.empty() ? nullptr : find_chat_family(choice.name);
  if (!choice.name.empty() && !named) {
    throw Error(ErrorCode::kInvalidArgument,
                "no chat template is called " + in_quotes(choice.name) + "; known are " + chat_family_names());
  }
  std::vector<NamedToken> tokens = named_tokens(directory, config);
  if (!named && !templates.empty()) return ChatTemplate(own_template(templates, directory, std::move(tokens), choice));
  const std::string text = templates.empty() ? "" : templates.front().text;
  return ChatTemplate(family_template(named ? *named : choose(directory, tokenizer), text, tokens, choice));
}

TokenIds generation_stop_tokens(const fs::path& directory) {
  const fs::path path = directory / "generation_config.json";
  const json config = read_object(path);
  const json* value = find_member(config, "eos_token_id");
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

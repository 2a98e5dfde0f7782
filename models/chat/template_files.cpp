#include "models/chat/template_files.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/allowance.h"
#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/whole_file.h"

namespace halfbyte::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{1} << 26;  // tokenizer_config.json may list all added tokens
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTemplates = 16;

std::optional<std::string> read_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  return read_whole_file(path, kMaxFileBytes);
}

// A text, or a list of named ones.
std::vector<NamedTemplate> templates_in(const json& object) {
  const json* value = find_member(object, "chat_template");
  std::vector<NamedTemplate> out;
  if (value && value->is_string()) out.push_back({"default", value->get<std::string>()});
  if (!value || !value->is_array()) return out;
  for (const json& entry : *value) {
    NamedTemplate one{string_member(entry, "name"), string_member(entry, "template")};
    if (!one.text.empty() && out.size() < kMaxTemplates) out.push_back(std::move(one));
  }
  std::ranges::stable_partition(out, [](const NamedTemplate& each) { return each.name == "default"; });
  return out;
}

std::vector<NamedTemplate> templates_beside(const fs::path& directory) {
  std::vector<NamedTemplate> out;
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory / "additional_chat_templates", ignored)) {
    if (entry.path().extension() == ".jinja" && paths.size() < kMaxTemplates) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  for (const fs::path& path : paths) out.push_back({path.stem().string(), read_file(path).value_or("")});
  return out;
}

// A special token: its spelling, or an object that has it. Nothing: not said.
std::optional<std::string> spelling_of(const json& value) {
  if (value.is_object()) return string_member(value, "content");
  return value.is_string() ? std::optional(value.get<std::string>())
         : value.is_null() ? std::optional<std::string>("")
                           : std::nullopt;
}

void add_tokens(const fs::path& directory, const json& object, std::vector<NamedToken>& tokens) {
  for (const auto& [key, value] : object.items()) {
    const auto spelling = key.ends_with("_token") ? spelling_of(value) : std::nullopt;
    if (!spelling || std::ranges::find(tokens, key, &NamedToken::name) != tokens.end()) continue;
    if (spelling->size() > kMaxTokenBytes)
      throw Error(ErrorCode::kCorrupt,
                  directory.string() + ": its " + printable(key) + " is longer than any model's token");
    tokens.push_back({key, *spelling});
  }
}

}  // namespace

json read_object(const fs::path& path) {
  const auto text = read_file(path);
  if (!text) return json::object();
  json value = huggingface::json_or_null(*text);
  if (!value.is_object()) throw Error(ErrorCode::kCorrupt, path.string() + ": is not a JSON object");
  return value;
}

const json* find_member(const json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() ? nullptr : &*at;
}

std::string string_member(const json& object, const char* key) {
  const json* value = find_member(object, key);
  return value && value->is_string() ? value->get<std::string>() : "";
}

std::vector<NamedTemplate> templates_of(const fs::path& directory, const json& tokenizer_config) {
  std::vector<NamedTemplate> out;
  if (auto text = read_file(directory / "chat_template.jinja"); text && !text->empty()) {
    out.push_back({"default", std::move(*text)});
    for (NamedTemplate& other : templates_beside(directory)) out.push_back(std::move(other));
  }
  if (out.empty()) out = templates_in(read_object(directory / "chat_template.json"));
  if (out.empty()) out = templates_in(tokenizer_config);
  for (const NamedTemplate& each : out) {
    if (each.text.size() <= kMaxTextBytes) continue;
    throw Error(ErrorCode::kCorrupt, directory.string() + ": its chat template has " +
                                         std::to_string(each.text.size()) + " bytes, more than any");
  }
  return out;
}

std::vector<NamedToken> named_tokens(const fs::path& directory, const json& tokenizer_config) {
  std::vector<NamedToken> tokens;
  add_tokens(directory, tokenizer_config, tokens);
  add_tokens(directory, read_object(directory / "special_tokens_map.json"), tokens);
  if (const json* extra = find_member(tokenizer_config, "extra_special_tokens"); extra && extra->is_object())
    add_tokens(directory, *extra, tokens);
  return tokens;
}

}  // namespace halfbyte::models

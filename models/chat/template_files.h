// A checkpoint's files as far as they say how to chat.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::models {

// An object; an empty one without the file. Errors: kCorrupt naming the file; kIo.
nlohmann::json read_object(const std::filesystem::path& path);

// Null: the object has no such member.
const nlohmann::json* find_member(const nlohmann::json& object, const char* key);
// Empty where there is no string of that name.
std::string string_member(const nlohmann::json& object, const char* key);

struct NamedTemplate {
  std::string name;  // "default", "tool_use", "rag"
  std::string text;
};

// A checkpoint's templates, of the first file that has one: chat_template.jinja, with what stands in
// additional_chat_templates; chat_template.json; tokenizer_config.json. The default one first. Errors: kCorrupt.
std::vector<NamedTemplate> templates_of(const std::filesystem::path& directory, const nlohmann::json& tokenizer_config);

struct NamedToken {
  std::string name;  // "bos_token"
  std::string spelling;
};

// The special tokens that have names, in tokenizer_config.json or else in special_tokens_map.json. Errors: kCorrupt.
std::vector<NamedToken> named_tokens(const std::filesystem::path& directory, const nlohmann::json& tokenizer_config);

}  // namespace halfbyte::models

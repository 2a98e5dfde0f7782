// What a tokenizer's JSON files hold beyond JsonField's values: ids, characters, rows of tables by type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/error.h>

#include "models/json/field.h"
#include "models/json/printable.h"

namespace halfbyte::models::huggingface {

// Errors of all: kCorrupt.
std::uint32_t token_id(const JsonField& field);  // a whole number of 32 bits
char32_t character(const JsonField& field);      // a string of exactly one
std::uint32_t count_or(const JsonField& json, const char* key, std::uint32_t fallback);
nlohmann::json described_token(const JsonField& field);  // an object whose "content" is a string

// The row of a table whose type is this one; `kind` is what the rows are ("decoders"). Errors: kUnsupported naming the
// type.
template <class Rows>
const auto& row_of_type(const JsonField& json, std::string_view type, const Rows& rows, const char* kind) {
  const auto row = std::find_if(std::begin(rows), std::end(rows), [&](const auto& each) { return each.type == type; });
  if (row != std::end(rows)) return *row;
  throw Error(ErrorCode::kUnsupported, json.path() + ": " + kind + " of type " + in_quotes(type) + " are not known");
}

constexpr std::size_t kMaxStages = 64;  // of one kind, in a tokenizer

// Says of the stages from `first` on where they stand, unless what stands inside this one has said it.
template <class Stages>
void name_stages(const JsonField& json, Stages& all, std::size_t first) {
  for (std::size_t i = first; i < all.size(); ++i)
    if (all[i]->where.empty()) all[i]->where = json.path();
}

// Appends to `all` what the row of the object's type makes of it. Errors: row_of_type's, and too many.
template <class Rows, class Stages>
void read_stage(const JsonField& json, const Rows& rows, const char* kind, Stages& all) {
  const std::size_t first = all.size();
  row_of_type(json, json.at("type").string(), rows, kind).read(json, all);
  name_stages(json, all, first);
  if (all.size() > kMaxStages) json.fail("more than " + std::to_string(kMaxStages) + " " + kind);
}

// The types that a table of such rows knows.
template <class Rows>
std::vector<std::string_view> types_of(const Rows& rows) {
  std::vector<std::string_view> types;
  for (const auto& row : rows) types.push_back(row.type);
  return types;
}

// The whole file. Errors: kCorrupt when it is no regular file or has more than 256 MiB; kIo.
std::string read_tokenizer_file(const std::filesystem::path& path);
// Errors: kCorrupt: not JSON, or nested too deep.
nlohmann::json parse_json(std::string_view text, const std::string& file_name);
// The same; null where parse_json fails.
nlohmann::json json_or_null(std::string_view text);

}  // namespace halfbyte::models::huggingface

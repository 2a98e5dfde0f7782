#include "convert/calibrate/text_values.h"

#include <algorithm>
#include <span>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::convert::calibrate {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxComparisons = 200'000'000;  // of the keys of one object with each other
constexpr files::JsonLimits kLineLimits{.max_bytes = 64'000'000, .max_comparisons = kMaxComparisons};
// A list has the keys of all its values.
constexpr files::JsonLimits kListLimits{.max_bytes = kMaxTextBytes, .max_comparisons = 10 * kMaxComparisons};

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw Error(ErrorCode::kCorrupt, where + ": " + problem);
}

void each_line(std::string_view text, const std::string& name, const TakeValue& take) {
  for (std::int64_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = name + ": line " + std::to_string(line);
    if (one.size() > kLineLimits.max_bytes) fail(where, "more than 64 MB");
    if (!take(files::parse_json<Json>(one, where, kLineLimits), where)) return;
  }
}

void each_item(std::string_view text, const std::string& name, const TakeValue& take) {
  const Json list = files::parse_json<Json>(text, name, kListLimits);
  if (!list.is_array()) fail(name, "is no list; a file of lines is called .jsonl");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!take(list[i], name + ": item " + std::to_string(i + 1))) return;
  }
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path) {
  const files::InputFile file(path);
  if (file.size_bytes() > kMaxTextBytes)
    throw Error(ErrorCode::kInvalidArgument, files::printable_path(path) + ": a text of more than 1 GiB");
  std::string out(file.size_bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

TextShape shape_of(const std::filesystem::path& path) {
  if (path.extension() == ".jsonl") return TextShape::kJsonLines;
  return path.extension() == ".json" ? TextShape::kJsonList : TextShape::kPlain;
}

void each_json_value(std::string_view text, const std::filesystem::path& path, TextShape shape, const TakeValue& take) {
  const std::string name = files::printable_path(path);
  shape == TextShape::kJsonList ? each_item(text, name, take) : each_line(text, name, take);
}

const Json* member(const Json& value, const char* name) {
  if (!value.is_object()) return nullptr;
  const auto found = value.find(name);
  return found == value.end() ? nullptr : &*found;
}

models::TokenIds token_ids_of(const Json& values, std::int64_t vocab_size, const std::string& where) {
  if (!values.is_array() || values.empty()) fail(where, "no list of token ids");
  models::TokenIds out;
  out.reserve(values.size());
  for (const Json& each : values) {
    const bool is_id = each.is_number_integer() && each >= 0 && each < vocab_size;
    if (!is_id)
      fail(where, files::printable(each.dump(), 40) + " is no token id: those of this model are 0 to " +
                      std::to_string(vocab_size - 1));
    out.push_back(each.get<std::int64_t>());
  }
  return out;
}

}  // namespace halfbyte::convert::calibrate

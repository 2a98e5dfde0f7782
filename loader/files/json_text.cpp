#include "loader/files/json_text.h"

#include <set>
#include <vector>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

// Sees every event before a tree is built from it; keeps only the keys of the objects that are open.
class Guard {
 public:
  Guard(const std::string& file_name, const JsonLimits& limits) : file_name_(file_name), limits_(limits) {}

  template <class Json>
  bool operator()(int depth, nlohmann::json::parse_event_t event, const Json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > limits_.max_depth) fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key) add_key(value.template get_ref<const std::string&>());
    return true;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, file_name_ + ": " + problem);
  }
  void add_key(const std::string& key) {
    if (!open_.back().insert(key).second) fail("the key " + in_quotes(key) + " stands twice in one object");
    comparisons_ += open_.back().size();
    if (comparisons_ > limits_.max_comparisons) fail("more keys than any such file has");
  }

  const std::string& file_name_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> open_;
  std::uint64_t comparisons_ = 0;
};

}  // namespace

std::string json_problem(const nlohmann::json::exception& error) {
  std::string_view text = error.what();
  const auto end_of_prefix = text.find("] ");
  if (end_of_prefix != std::string_view::npos) text.remove_prefix(end_of_prefix + 2);
  return printable(text);
}

std::string read_text(const fs::path& path, std::uint64_t max_bytes) {
  const InputFile file(path);
  if (file.size_bytes() > max_bytes) {
    throw Error(ErrorCode::kCorrupt, printable_path(path) + ": " + std::to_string(file.size_bytes()) +
                                         " bytes; no such file of a checkpoint has more than " +
                                         std::to_string(max_bytes));
  }
  std::string text(file.size_bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

template <class Json>
Json parse_json(std::string_view text, const std::string& file_name, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) throw Error(ErrorCode::kCorrupt, file_name + ": too large");
  // The lexer takes a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos)
    throw Error(ErrorCode::kCorrupt, file_name + ": not JSON: holds a zero byte");
  Guard guard(file_name, limits);
  try {
    return Json::parse(
        text, [&](int depth, nlohmann::json::parse_event_t event, Json& value) { return guard(depth, event, value); });
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kCorrupt, file_name + ": not JSON: " + json_problem(error));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace halfbyte::files

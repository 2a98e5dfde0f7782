#include "loader/files/json_text.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

// Sees every event of a text before a tree is built from it; keeps only the keys of the objects that are open. Not a
// callback of the parser itself, which looks through an array again whenever an object in it ends.
class Guard final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Guard(const std::string& file_name, const JsonLimits& limits) : file_name_(file_name), limits_(limits) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  // What is wrong the parser will say.
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) fail("the key " + in_quotes(key) + " stands twice in one object");
    comparisons_ += keys_.back().size();
    if (comparisons_ > limits_.max_comparisons) fail("more keys than any such file has");
    return true;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, file_name_ + ": " + problem);
  }
  bool open() {
    keys_.emplace_back();
    if (keys_.size() > static_cast<std::size_t>(limits_.max_depth))
      fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::string& file_name_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;  // of the objects and arrays that are open
  std::uint64_t comparisons_ = 0;
};

}  // namespace

std::string json_problem(const std::exception& error) {
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
    nlohmann::json::sax_parse(text, &guard);
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kCorrupt, file_name + ": not JSON: " + json_problem(error));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace halfbyte::files

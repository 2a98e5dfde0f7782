#include "loader/files/json_text.h"

#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/printable.h"
#include "models/json/tree_builder.h"

namespace halfbyte::files {
namespace {

// Builds the tree while it checks: depth, and keys that stand twice. Not a callback of nlohmann's own tree, which looks
// through an array again whenever an object in it ends.
template <class Json>
class CheckedTree final : public nlohmann::json_sax<nlohmann::json> {
 public:
  CheckedTree(const std::string& file_name, const JsonLimits& limits) : file_name_(file_name), limits_(limits) {}

  Json take() { return tree_.take(); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(Json::value_t::object); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::value_t::array); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    throw Error(ErrorCode::kCorrupt, file_name_ + ": not JSON: " + json_problem(error));
  }

  bool key(string_t& key) override {
    if (!tree_.key(key)) fail("the key " + in_quotes(key) + " stands twice in one object");
    comparisons_ += tree_.top().size();
    if (comparisons_ > limits_.max_comparisons) fail("more keys than any such file has");
    return true;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, file_name_ + ": " + problem);
  }
  bool add(Json value) {
    tree_.add(std::move(value));
    return true;
  }
  bool open(typename Json::value_t kind) {
    if (tree_.depth() >= static_cast<std::size_t>(limits_.max_depth))
      fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    tree_.open(kind);
    return true;
  }
  bool close() {
    tree_.close();
    return true;
  }

  const std::string& file_name_;
  const JsonLimits& limits_;
  models::JsonTreeBuilder<Json> tree_;
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
  CheckedTree<Json> tree(file_name, limits);
  nlohmann::json::sax_parse(text, &tree);
  return tree.take();
}

template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

}  // namespace halfbyte::files

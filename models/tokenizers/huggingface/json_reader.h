// Reads JSON of bounded depth, and can take large lists aside instead of building them as trees.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/json/tree_builder.h"

namespace halfbyte::models::huggingface {

// A tokenizer's vocabulary and merges as they stand in its file.
struct VocabularyLists {
  std::vector<std::pair<std::string, std::uint32_t>> ids;   // "vocab": {"token": id, ...}
  std::vector<std::pair<std::string, double>> scores;       // "vocab": [["token", score], ...]
  std::vector<std::pair<std::string, std::string>> merges;  // ["a b", ...] or [["a", "b"], ...]
  bool has_merges = false;
  bool is_scored = false;
};

// Errors: kCorrupt naming the file: not JSON, nested deeper than 64, or a list of another form.
class JsonReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  // With `lists`, model.vocab and model.merges go there and not into the tree.
  explicit JsonReader(std::string file_name, VocabularyLists* lists = nullptr)
      : file_name_(std::move(file_name)), lists_(lists) {}
  nlohmann::json read(std::string_view text);

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& text) override;
  bool string(string_t& value) override;
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool key(string_t& key) override;
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override;

 private:
  enum class Aside { kNone, kIds, kScores, kMerges };

  [[noreturn]] void fail(const std::string& problem) const;
  void add(nlohmann::json value);
  void open(nlohmann::json::value_t kind);
  bool close();
  Aside aside_of_list(nlohmann::json::value_t kind) const;
  void add_number(double value);
  void add_string(std::string& value);
  void add_merge(std::string_view line);
  void end_pair();

  std::string file_name_;
  VocabularyLists* lists_;
  JsonTreeBuilder<nlohmann::json> tree_;
  std::string key_;
  std::string model_key_;  // the last key inside the root's "model"
  std::string root_key_;
  Aside aside_ = Aside::kNone;
  bool in_pair_ = false;
  std::vector<std::string> pair_strings_;
  std::vector<double> pair_numbers_;
};

}  // namespace halfbyte::models::huggingface

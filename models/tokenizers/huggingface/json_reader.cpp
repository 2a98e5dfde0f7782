#include "models/tokenizers/huggingface/json_reader.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/printable.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::size_t kMaxDepth = 64;
using Kind = nlohmann::json::value_t;

}  // namespace

void JsonReader::fail(const std::string& problem) const {
  throw Error(ErrorCode::kCorrupt, file_name_ + ": " + problem);
}

nlohmann::json JsonReader::read(std::string_view text) {
  // The lexer takes a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos) fail("not JSON: holds a zero byte");
  nlohmann::json::sax_parse(text, this);
  return tree_.take();
}

bool JsonReader::parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) {
  fail("not JSON: cannot be read from byte " + std::to_string(at) + " on");
}

void JsonReader::add(nlohmann::json value) {
  if (aside_ != Aside::kNone) fail("model: " + model_key_ + " holds what such a list cannot");
  tree_.add(std::move(value));
}

JsonReader::Aside JsonReader::aside_of_list(Kind kind) const {
  if (!lists_ || tree_.depth() != 2 || root_key_ != "model" || !tree_.top().is_object()) return Aside::kNone;
  if (model_key_ == "vocab") return kind == Kind::object ? Aside::kIds : Aside::kScores;
  return model_key_ == "merges" && kind == Kind::array ? Aside::kMerges : Aside::kNone;
}

void JsonReader::open(Kind kind) {
  if (tree_.depth() >= kMaxDepth) fail("nested deeper than " + std::to_string(kMaxDepth) + " levels");
  if (aside_ != Aside::kNone) {
    if (in_pair_ || kind != Kind::array || aside_ == Aside::kIds)
      fail("model: " + model_key_ + " holds a list in a list");
    in_pair_ = true;
    return;
  }
  aside_ = aside_of_list(kind);
  if (aside_ == Aside::kScores) lists_->is_scored = true;
  if (aside_ == Aside::kMerges) lists_->has_merges = true;
  if (aside_ != Aside::kNone) return;
  tree_.open(kind);
}

bool JsonReader::close() {
  if (in_pair_) {
    end_pair();
  } else if (aside_ != Aside::kNone) {
    aside_ = Aside::kNone;
  } else {
    tree_.close();
  }
  return true;
}

void JsonReader::end_pair() {
  in_pair_ = false;
  const bool is_scored = aside_ == Aside::kScores && pair_strings_.size() == 1 && pair_numbers_.size() == 1;
  const bool is_merge = aside_ == Aside::kMerges && pair_strings_.size() == 2 && pair_numbers_.empty();
  if (!is_scored && !is_merge) fail("model: " + model_key_ + ": a pair of another form than the library's");
  if (is_scored) lists_->scores.emplace_back(std::move(pair_strings_[0]), pair_numbers_[0]);
  if (is_merge) lists_->merges.emplace_back(std::move(pair_strings_[0]), std::move(pair_strings_[1]));
  pair_strings_.clear();
  pair_numbers_.clear();
}

void JsonReader::add_number(double value) {
  if (!in_pair_ || aside_ != Aside::kScores) fail("model: " + model_key_ + ": a number where none can be");
  pair_numbers_.push_back(value);
}

void JsonReader::add_merge(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
    fail("model: merges[" + std::to_string(lists_->merges.size()) + "]: is not two tokens with one space between");
  lists_->merges.emplace_back(line.substr(0, space), line.substr(space + 1));
}

void JsonReader::add_string(std::string& value) {
  if (in_pair_) {
    pair_strings_.push_back(std::move(value));
  } else if (aside_ == Aside::kMerges) {
    if (!value.starts_with("#version")) add_merge(value);
  } else {
    fail("model: " + model_key_ + ": a string where none can be");
  }
}

bool JsonReader::null() {
  add(nullptr);
  return true;
}

bool JsonReader::boolean(bool value) {
  add(value);
  return true;
}

bool JsonReader::number_integer(number_integer_t value) {
  if (aside_ == Aside::kIds) fail("model: vocab: the id of " + in_quotes(key_) + " is below 0");
  if (aside_ == Aside::kNone) {
    add(value);
  } else {
    add_number(static_cast<double>(value));
  }
  return true;
}

bool JsonReader::number_unsigned(number_unsigned_t value) {
  if (aside_ == Aside::kIds) {
    if (value > UINT32_MAX) fail("model: vocab: the id of " + in_quotes(key_) + " is beyond 32 bits");
    lists_->ids.emplace_back(std::move(key_), static_cast<std::uint32_t>(value));
  } else if (aside_ == Aside::kNone) {
    add(value);
  } else {
    add_number(static_cast<double>(value));
  }
  return true;
}

bool JsonReader::number_float(number_float_t value, const string_t&) {
  if (aside_ == Aside::kNone) {
    add(value);
  } else {
    add_number(value);
  }
  return true;
}

bool JsonReader::string(string_t& value) {
  if (aside_ == Aside::kNone) {
    add(std::move(value));
  } else {
    add_string(value);
  }
  return true;
}

bool JsonReader::start_object(std::size_t) {
  open(Kind::object);
  return true;
}

bool JsonReader::start_array(std::size_t) {
  open(Kind::array);
  return true;
}

bool JsonReader::end_object() { return close(); }
bool JsonReader::end_array() { return close(); }

bool JsonReader::key(string_t& key) {
  key_ = key;
  if (aside_ != Aside::kNone) return true;
  tree_.key(key_);
  if (tree_.depth() == 1) root_key_ = key_;
  if (tree_.depth() == 2) model_key_ = key_;
  return true;
}

}  // namespace halfbyte::models::huggingface

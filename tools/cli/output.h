// Results on stdout: JSON, and tables with aligned columns.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

void print_line(const std::string& line);  // or several; no control character but line breaks reaches stdout
// A verb's whole result, indented.
void print_json(const nlohmann::ordered_json& value);
// One of several objects, on a line of its own.
void print_json_line(const nlohmann::ordered_json& value);
bool is_json_printed() noexcept;  // by print_json()
// On one line, or indented. Bytes that are no UTF-8 become U+FFFD; control and format characters are escaped.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);
// A model's text, or one that it was given, for stdout: on a terminal without what could steer it, else as it is.
std::string shown_text(const std::string& text);

enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells);  // one a column; control characters are escaped
  void print(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace halfbyte::cli

// Results on stdout: JSON, and tables with aligned columns.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

void print_line(const std::string& line);
void print_json(const nlohmann::ordered_json& value);  // indented; bytes that are no UTF-8 become U+FFFD

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

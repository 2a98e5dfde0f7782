#include "tools/cli/output.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/json/printable.h"
#include "tools/cli/errors.h"
#include "tools/cli/platform.h"

namespace halfbyte::cli {
namespace {

bool is_result_printed = false;

// Columns on a terminal: bytes less the continuation bytes of UTF-8.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t columns, Align align) {
  const std::string space(columns - std::min(columns, width(text)), ' ');
  return align == Align::kRight ? space + text : text + space;
}

// Format characters too: what is printed by lines is the program's own words and names.
std::string lines_without_controls(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += printable_whole(text.substr(0, end));
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace

void print_line(const std::string& line) {
  const std::string shown = lines_without_controls(line) + "\n";
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return printable_json(value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_json(const nlohmann::ordered_json& value) {
  is_result_printed = true;
  print_line(json_text(value, 2));
}

void print_json_line(const nlohmann::ordered_json& value) { print_line(json_text(value)); }

bool is_json_printed() noexcept { return is_result_printed; }

std::string shown_text(const std::string& text) { return stdout_is_terminal() ? printable_lines(text) : text; }

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

void Table::print(const std::string& indent) const {
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(width(column.title));
  }
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto print_row = [&](const std::vector<std::string>& row) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += (i > 0 ? "  " : "") + padded(row[i], widths[i], columns_[i].align);
    line.erase(line.find_last_not_of(' ') + 1);
    print_line(line);
  };
  print_row(titles);
  for (const auto& row : rows_) print_row(row);
}

}  // namespace halfbyte::cli

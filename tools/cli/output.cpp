#include "tools/cli/output.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/json/printable.h"
#include "tools/cli/errors.h"
#include "tools/cli/fields.h"
#include "tools/cli/platform.h"
#include "tools/cli/wrap.h"

namespace halfbyte::cli {
namespace {

bool is_result_printed = false;

constexpr std::size_t kUnlimited = std::size_t{1} << 30;  // of a pipe: lines are as long as they are

using Row = std::vector<std::string>;
using Widths = std::vector<std::size_t>;

constexpr std::size_t kGap = 2;
constexpr std::size_t kFewest = 18;  // columns of a cell that is wrapped; less is hard to read

std::string padded(const std::string& text, std::size_t columns, Align align) {
  const std::string space(columns - std::min(columns, columns_of(text)), ' ');
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

Widths natural_widths(const std::vector<Row>& rows) {
  Widths out(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = std::max(out[i], columns_of(row[i]));
  }
  return out;
}

std::size_t total_of(const Widths& widths) {
  std::size_t out = kGap * (widths.size() - std::min<std::size_t>(widths.size(), 1));
  for (const std::size_t width : widths) out += width;
  return out;
}

// Takes columns from the widest texts until all fit; numbers stay whole. False: there is not enough to take.
bool narrow(const std::vector<Column>& columns, std::size_t limit, Widths& widths) {
  while (total_of(widths) > limit) {
    std::size_t* widest = nullptr;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool is_text = columns[i].align == Align::kLeft && widths[i] > kFewest;
      if (is_text && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) return false;
    --*widest;
  }
  return true;
}

void print_row(const std::vector<Column>& columns, const Row& row, const Widths& widths, const std::string& indent) {
  std::vector<Row> cells;
  std::size_t lines = 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    cells.push_back(columns_of(row[i]) > widths[i] ? wrapped(row[i], widths[i]) : Row{row[i]});
    lines = std::max(lines, cells.back().size());
  }
  for (std::size_t n = 0; n < lines; ++n) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += (i > 0 ? std::string(kGap, ' ') : "") +
              padded(n < cells[i].size() ? cells[i][n] : "", widths[i], columns[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    print_line(line);
  }
}

// Where a table is too wide: a row's first cell, and below it the others, as a table where that fits, else by name.
void print_stacked(const std::vector<Column>& columns, const std::vector<Row>& rows, const std::string& indent,
                   std::size_t limit) {
  const std::vector<Column> rest(columns.begin() + 1, columns.end());
  Widths widths = natural_widths(rows);
  widths.erase(widths.begin());
  const std::string deeper = indent + "  ";
  const bool fits = narrow(rest, limit - std::min(limit, deeper.size()), widths);
  for (const Row& row : rows) {
    if (&row == &rows.front() && !fits) continue;
    for (const std::string& line : wrapped(row.front(), limit - std::min(limit - 1, indent.size())))
      print_line(indent + line);
    const Row others(row.begin() + 1, row.end());
    if (fits) {
      print_row(rest, others, widths, deeper);
      continue;
    }
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (!others[i].empty())
        print_line(with_indent(deeper + rest[i].title + ": ", others[i], deeper.size() + 2, limit));
    }
  }
}

void print_rows(const std::vector<Column>& columns, const std::vector<Row>& rows, const std::string& indent,
                std::size_t limit) {
  Widths widths = natural_widths(rows);
  if (!narrow(columns, limit - std::min(limit, indent.size()), widths) && columns.size() > 1)
    return print_stacked(columns, rows, indent, limit);
  for (const Row& row : rows) print_row(columns, row, widths, indent);
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

std::size_t printed_columns() noexcept {
  const std::optional<int> columns = output_columns();
  return columns ? static_cast<std::size_t>(*columns) : kUnlimited;
}

void print_field(const std::string& label, const std::string& value) {
  constexpr std::size_t kIndent = 14;
  std::string head = "  " + label;
  head.resize(std::max(head.size() + 1, kIndent), ' ');
  print_line(with_indent(head, printable(value), kIndent, printed_columns()));
}

void print_text(const std::string& text) { print_line(with_indent("", printable(text), 0, printed_columns())); }

void Table::print(const std::string& indent) const {
  std::vector<Row> rows(1);
  for (const Column& column : columns_) rows.front().push_back(column.title);
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  print_rows(columns_, rows, indent, printed_columns());
}

}  // namespace halfbyte::cli

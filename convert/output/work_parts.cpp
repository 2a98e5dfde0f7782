#include "convert/output/work_parts.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "loader/files/file_tree.h"

namespace halfbyte::convert {
namespace {

using files::fs::path;

constexpr std::string_view kBegin = "part-", kMiddle = "-of-";

// Takes `word` off the front.
bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool take(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

path part_folder(const path& work, const WorkPart& part) {
  return work / (std::string(kBegin) + std::to_string(part.index) + std::string(kMiddle) + std::to_string(part.count));
}

std::optional<WorkPart> part_of_folder(const path& name) {
  const std::string text = name.string();
  std::string_view rest = text;
  WorkPart out;
  const bool is_one = take(rest, kBegin) && take(rest, out.index) && take(rest, kMiddle) && take(rest, out.count);
  if (!is_one || !rest.empty() || out.index < 1 || out.index > out.count) return std::nullopt;
  return part_folder({}, out) == name ? std::optional(out) : std::nullopt;
}

std::vector<WorkPart> parts_begun(const path& work) {
  std::vector<WorkPart> out;
  if (!files::is_directory(work)) return out;
  for (const path& inside : files::entries(work)) {
    const auto part = part_of_folder(inside.filename());
    if (part && files::type_of(inside) == files::fs::file_type::directory) out.push_back(*part);
  }
  std::ranges::sort(out, {}, [](const WorkPart& part) { return std::pair(part.count, part.index); });
  return out;
}

void make_part_folder(const path& folder) {
  const auto type = files::type_of(folder);
  if (type != files::fs::file_type::not_found && type != files::fs::file_type::directory) files::remove_tree(folder);
  files::make_directory(folder);
}

void empty_part_folder(const path& folder) {
  for (const path& inside : files::entries(folder)) {
    if (inside.filename() != kPartsLock || !files::is_sole_regular_file(inside)) files::remove_tree(inside);
  }
}

std::optional<JournalContents> read_journals(const path& work, const nlohmann::json* expected) {
  std::optional<JournalContents> out = read_journal(work);
  for (const WorkPart& part : parts_begun(work)) {
    auto journal = read_journal(part_folder(work, part));
    if (!journal) continue;
    if (!out) {
      out = std::move(journal);
      out->size_bytes = 0;  // of the journal in `work`, which is not there
      continue;
    }
    if (expected && *out->identity == *expected) out->identity = journal->identity;
    for (auto& [tensor, finished] : journal->finished) out->finished.insert_or_assign(tensor, std::move(finished));
    for (auto& [layer, calibrated] : journal->layers) out->layers.insert_or_assign(layer, std::move(calibrated));
  }
  return out;
}

}  // namespace halfbyte::convert

#include "convert/file_notes.h"

#include "loader/files/family.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {

std::string listed(const std::vector<files::fs::path>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + files::printable_path(name);
  return out;
}

std::vector<std::string> file_notes(const files::Checkpoint& source) {
  std::vector<std::string> out = source.notes;
  if (!source.remote_code.empty()) {
    out.push_back("code is never copied: " + listed(source.remote_code) +
                  (files::names_remote_code(source) ? "; config.json still names it (auto_map)" : ""));
  }
  if (!source.other_weights.empty())
    out.push_back("other weight files are not copied: " + listed(source.other_weights));
  return out;
}

}  // namespace halfbyte::convert

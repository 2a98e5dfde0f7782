#include "loader/files/links.h"

#include <algorithm>
#include <array>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::string_view kSnapshots = "snapshots";
constexpr std::string_view kModelPrefix = "models--";
constexpr auto kTokenizerEnds = std::to_array<std::string_view>({".json", ".model", ".txt", ".jinja", ".tiktoken"});

// What a link may lead to: the folder, or all of a model's folder in the cache. `folder` has no links in it.
fs::path boundary_of(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    const fs::path snapshots = at.parent_path();
    const bool is_snapshot =
        snapshots.filename() == kSnapshots && snapshots.parent_path().filename().string().starts_with(kModelPrefix);
    if (is_snapshot) return snapshots.parent_path();
  }
  return folder;
}

}  // namespace

void check_link(const fs::path& directory, std::string_view name) {
  const fs::path path = directory / name;
  if (type_of(path) != fs::file_type::symlink) return;
  const fs::path target = resolved(path);
  if (is_inside(target, boundary_of(resolved(directory)))) return;
  throw Error(ErrorCode::kUnsupported,
              printable_path(path) + ": is a link to " + printable_path(target) +
                  ", outside of the model's folder, and is not followed; copy the file there, or make a hard link");
}

std::vector<std::string> tokenizer_files(const fs::path& directory) {
  std::vector<std::string> out;
  if (!files::is_directory(directory)) return out;
  for (const fs::path& path : entries(directory)) {
    const std::string name = path.filename().string();
    const bool may_be_read =
        std::ranges::any_of(kTokenizerEnds, [&](std::string_view end) { return name.ends_with(end); });
    if (!may_be_read || !files::is_regular_file(path)) continue;
    check_link(directory, name);
    out.push_back(name);
  }
  return out;
}

void check_tokenizer_links(const fs::path& directory) { tokenizer_files(directory); }

}  // namespace halfbyte::files

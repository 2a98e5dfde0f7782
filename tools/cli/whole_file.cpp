#include "tools/cli/whole_file.h"

#include <cerrno>
#include <span>

#include "loader/files/file_tree.h"
#include "loader/files/replaced_file.h"
#include "loader/files/system_error.h"

namespace halfbyte::cli {
namespace {

files::ReplacedFile begin(const std::filesystem::path& path, std::size_t size_bytes) {
  if (!files::is_directory(files::absolute(path).parent_path())) files::fail_on(path, "writing", ENOENT);
  if (files::is_directory(path)) files::fail_on(path, "writing", EISDIR);
  return {path, size_bytes};
}

}  // namespace

void write_whole(const std::filesystem::path& path, std::string_view text) {
  files::ReplacedFile file = begin(path, text.size());
  file.write(0, std::as_bytes(std::span(text)));
  file.commit();
}

void check_writable(const std::filesystem::path& path) { begin(path, 0); }

}  // namespace halfbyte::cli

#include "tools/cli/whole_file.h"

#include <cerrno>
#include <span>

#include "loader/files/platform.h"
#include "loader/files/system_error.h"

namespace halfbyte::cli {
namespace {

namespace fs = std::filesystem;

// Gives its name.
fs::path write_unfinished(const fs::path& path, std::string_view text) {
  const fs::path unfinished = path.string() + ".part";
  std::error_code error;
  fs::remove(unfinished, error);
  files::OutputFile(unfinished, text.size()).write(0, std::as_bytes(std::span(text)));
  return unfinished;
}

}  // namespace

void write_whole(const fs::path& path, std::string_view text) {
  const fs::path unfinished = write_unfinished(path, text);
  std::error_code error;
  fs::rename(unfinished, path, error);
  if (error) files::fail_on(path, "writing", error.value());
}

void check_writable(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) files::fail_on(path, "writing", EISDIR);
  fs::remove(write_unfinished(path, ""), error);
}

}  // namespace halfbyte::cli

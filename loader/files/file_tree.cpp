#include "loader/files/file_tree.h"

#include <algorithm>
#include <system_error>

#include "loader/files/system_error.h"

namespace halfbyte::files {
namespace {

// A link in a circle leads nowhere.
bool is_absent(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory ||
         error == std::errc::too_many_symbolic_link_levels;
}

void check(const std::error_code& error, const fs::path& path, std::string_view doing) {
  if (error) fail_on(path, doing, error.value());
}

// fs::status() gives an error for what is not there.
fs::file_type checked_type(const fs::file_status& status, const std::error_code& error, const fs::path& path) {
  if (error && !is_absent(error)) fail_on(path, "looking at it", error.value());
  return status.type();
}

fs::file_type type_followed(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return checked_type(status, error, path);
}

}  // namespace

fs::file_type type_of(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  return checked_type(status, error, path);
}

bool is_directory(const fs::path& path) { return type_followed(path) == fs::file_type::directory; }

bool is_regular_file(const fs::path& path) { return type_followed(path) == fs::file_type::regular; }

bool is_sole_regular_file(const fs::path& path) {
  if (type_of(path) != fs::file_type::regular) return false;
  std::error_code error;
  const std::uintmax_t names = fs::hard_link_count(path, error);
  check(error, path, "looking at it");
  return names == 1;
}

std::uint64_t file_size(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  check(error, path, "reading the size");
  return size;
}

std::int64_t changed_at(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  check(error, path, "reading the time of its last change");
  return static_cast<std::int64_t>(time.time_since_epoch().count());
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    out.push_back(entry->path());
  check(error, directory, "listing it");
  return out;
}

bool make_directory(const fs::path& path) {
  std::error_code error;
  const bool is_made = fs::create_directory(path, error);
  check(error, path, "making the folder");
  return is_made;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check(error, path, "deleting it");
}

fs::path absolute(const fs::path& path) {
  std::error_code error;
  const fs::path out = fs::absolute(path, error);
  check(error, path, "finding the current folder");
  return out.lexically_normal();
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  const fs::path out = fs::weakly_canonical(path, error);
  check(error, path, "following its links");
  return out.has_filename() ? out : out.parent_path();
}

bool is_inside(const fs::path& inner, const fs::path& outer) {
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

}  // namespace halfbyte::files

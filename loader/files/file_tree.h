// What lies where, and folders that are made and removed: std::filesystem's operations, whose failures are Errors that
// name the path and the reason. For everything that looks at a user's folders.
#pragma once

#include <cstdint>
#include <vector>

#include "loader/files/data_file.h"

namespace halfbyte::files {

// Errors of all: kIo, kNoResources, kNotFound where what is asked for must be there.

// Of the path itself, so that a link is a link; fs::file_type::not_found when nothing is there.
fs::file_type type_of(const fs::path& path);
// Of what a link leads to; false when nothing is there.
bool is_directory(const fs::path& path);
bool is_regular_file(const fs::path& path);
// A regular file, no link, that has no other name: writing to it changes nothing elsewhere.
bool is_sole_regular_file(const fs::path& path);
std::uint64_t file_size(const fs::path& path);
// When it was last written to. Units: of the system's clock for files, only to be compared.
std::int64_t changed_at(const fs::path& path);
// What is in a folder, each as directory / name.
std::vector<fs::path> entries(const fs::path& directory);
// Whether it was made; false when there is one already. Errors: also kAlreadyExists when something else is there.
bool make_directory(const fs::path& path);
// With all that is in it; links are removed, not followed. Nothing there is no error.
void remove_tree(const fs::path& path);
// As this process sees it: from the root, without "." and "..".
fs::path absolute(const fs::path& path);
// With every link followed, as far as there is something.
fs::path resolved(const fs::path& path);
// Of resolved paths: whether `inner` is `outer`, or lies in it.
bool is_inside(const fs::path& inner, const fs::path& outer);

}  // namespace halfbyte::files

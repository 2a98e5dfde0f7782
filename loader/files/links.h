// Which symbolic links in a model's folder are followed. For everything that opens what lies there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loader/files/data_file.h"

namespace halfbyte::files {

// A model comes from strangers, and what lies in its folder is read, shown in messages and copied into results. So a
// link is followed where it stays in that folder, or, when that is a snapshot in Hugging Face's cache
// (models--ORG--NAME/snapshots/REVISION), in the cache's folder of that model. How the folder itself is reached is the
// user's word: it may be a link. Errors: kUnsupported naming the link and where it leads.
void check_link(const fs::path& directory, std::string_view name);

// The files of a folder that a tokenizer or a chat template may be read from, by the ends of their names, each of them
// checked; config.json and others that end so are among them.
std::vector<std::string> tokenizer_files(const fs::path& directory);
void check_tokenizer_links(const fs::path& directory);

}  // namespace halfbyte::files

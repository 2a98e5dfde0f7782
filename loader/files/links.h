// Which symbolic links in a model's folder are followed. For everything that opens what lies there.
#pragma once

#include <string_view>

#include "loader/files/data_file.h"

namespace halfbyte::files {

// A model comes from strangers, and what lies in its folder is read, shown in messages and copied into results. So a
// link is followed where it stays in that folder, or, when that is a snapshot in Hugging Face's cache
// (models--ORG--NAME/snapshots/REVISION), in the cache's folder of that model. How the folder itself is reached is the
// user's word: it may be a link. Errors: kUnsupported naming the link and where it leads.
void check_link(const fs::path& directory, std::string_view name);

// The same of all of a folder's files that a tokenizer or a chat template may be read from, by the ends of their names.
void check_tokenizer_links(const fs::path& directory);

}  // namespace halfbyte::files

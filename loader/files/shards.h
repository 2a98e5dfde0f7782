// A model in several files: which they are, by an index or by their names. For every format that has shards.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/platform.h"

namespace halfbyte::files {

struct ShardIndex {
  std::map<std::string, std::string> weight_map;  // tensor -> file
  std::vector<std::string> shards;                // by name
};

// Errors: kCorrupt: not such an index, or it names a file that is not in the folder, or has another extension.
ShardIndex read_shard_index(const fs::path& directory, const char* index_file, std::string_view extension);

// Errors: kCorrupt when a name ("model-00001-of-00002.bin") says that there are other shards.
void check_shard_count(const fs::path& directory, const std::vector<std::string>& names);

}  // namespace halfbyte::files

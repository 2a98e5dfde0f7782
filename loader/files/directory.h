// What lies in a checkpoint's directory, by kind, before anything is opened. For open_checkpoint.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loader/files/formats/format.h"
#include "loader/files/platform.h"

namespace halfbyte::files {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kSingleFile = "model.safetensors";

struct DirectoryContents {
  std::vector<std::string> data_files;            // to read, by name
  std::map<std::string, std::string> weight_map;  // tensor -> file; empty without an index
  bool has_index = false;
  bool has_config = false;
  bool has_manifest = false;
  const Format* format = nullptr;    // of data_files; null: safetensors
  std::vector<fs::path> side_files;  // relative, by name
  std::vector<fs::path> remote_code;
  std::vector<fs::path> other_weights;
};

// Follows symbolic links to files as links.h says; hidden files, folders and links that lead nowhere are left out.
// Errors: kNotFound without weights, kUnsupported when they are of another format only, or a link leads elsewhere,
// kCorrupt for a bad index.
DirectoryContents list_checkpoint(const fs::path& directory);

// The format of a lone file; null: safetensors. Errors: kUnsupported when its first bytes are those of one that is not
// read.
const Format* check_format(const fs::path& file);

}  // namespace halfbyte::files

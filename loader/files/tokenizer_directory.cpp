#include "loader/files/tokenizer_directory.h"

#include <algorithm>
#include <array>

#include <halfbyte/error.h>

#include "loader/files/checkpoint.h"
#include "loader/files/file_tree.h"
#include "loader/files/links.h"

namespace halfbyte::files {
namespace {

// Whether a folder has a tokenizer of its own, which is believed first.
bool has_tokenizer(const fs::path& directory) {
  return std::ranges::any_of(std::array{"tokenizer.json", "tokenizer.model", "vocab.json"},
                             [&](const char* name) { return files::is_regular_file(directory / name); });
}

// What files of weights such a folder has say of a tokenizer: nothing.
bool has_safetensors(const fs::path& directory) {
  std::error_code ignored;
  return std::ranges::any_of(fs::directory_iterator(directory, ignored),
                             [](const auto& entry) { return entry.path().extension() == ".safetensors"; });
}

// Where the tokenizer lies beside the weights, what is wrong with those is for others to say.
std::map<std::string, GeneratedFile> generated_files(const fs::path& checkpoint, bool has_files) try {
  return open_checkpoint(checkpoint).generated_files;
} catch (const Error& error) {
  if (has_files || error.code() == ErrorCode::kNotFound) return {};
  throw;
}

void write(const fs::path& path, const std::string& bytes) {
  OutputFile(path, bytes.size()).write(0, std::as_bytes(std::span(bytes)));
}

}  // namespace

TokenizerDirectory::TokenizerDirectory(const fs::path& checkpoint, WeightsAre weights) {
  std::error_code ignored;
  const bool is_directory = fs::is_directory(checkpoint, ignored);
  path_ = is_directory ? checkpoint : checkpoint.parent_path();
  if (path_.empty()) path_ = ".";
  check_tokenizer_links(path_);
  if (is_directory && has_tokenizer(checkpoint)) return;
  if (is_directory && weights == WeightsAre::kOpenedLater && has_safetensors(checkpoint)) return;
  const auto files = generated_files(checkpoint, checkpoint.extension() == ".safetensors" && has_tokenizer(path_));
  if (files.empty()) return;
  made_.emplace();
  path_ = made_->path();
  for (const auto& [name, text] : files) write(path_ / name, text());
}

}  // namespace halfbyte::files

// Checkpoints that are not safetensors: a row of the table each, chosen by content.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

struct Format {
  std::string_view kind;  // Checkpoint::kind
  // Whether the file is of this format, by its bytes. Errors: kIo.
  bool (*is_format)(const InputFile& file);
  // The files of a folder without safetensors that make up a model of this format, in order; empty: none do.
  std::vector<std::string> (*pick)(const fs::path& directory, const std::vector<std::string>& names);
  // Adds data files, tensors (see translation.h) and what else the format knows: config, generated files, notes.
  // Returns the records of packed tensors; all others are dense. `paths` are the files; `directory` is set. Errors:
  // kCorrupt, kUnsupported, naming the file.
  std::vector<TensorRecord> (*open)(std::span<const fs::path> paths, Checkpoint& checkpoint);
  // How names of its files end. Where another row has the same, only one lists them.
  std::span<const std::string_view> extensions = {};
  // What a file with such a name is called in messages when is_format is false of it.
  std::string_view by_name_only = {};
  // Files beside its weights that it reads too, by their names; null: none.
  bool (*is_read_too)(std::string_view name) noexcept = nullptr;
  // Read as safetensors, its first bytes would be a header longer than any file: is_format decides before those are
  // read.
  bool is_never_safetensors = false;
  // A file says what model it is of by itself, or its open() finds what does. Others take it from config.json.
  bool is_self_contained = false;
};

std::span<const Format> formats() noexcept;

// The format of a lone file, or null: it is none of them.
const Format* format_of(const InputFile& file);

// The format whose files have names like this one, or null.
const Format* format_by_name(std::string_view name) noexcept;

}  // namespace halfbyte::files

#include "loader/files/directory.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/json_text.h"
#include "loader/files/links.h"
#include "loader/files/manifest.h"
#include "loader/files/printable.h"
#include "loader/files/shards.h"

namespace halfbyte::files {
namespace {

struct UnreadFormat {
  std::string_view extension;
  std::string_view kind;  // empty: never the model itself
};

// Weights in formats that are not read, or an index of such.
constexpr auto kUnreadFormats = std::to_array<UnreadFormat>({
    {".h5", "TensorFlow HDF5"},
    {".msgpack", "Flax msgpack"},
    {".onnx", "ONNX"},
    {".bin.index.json", ""},
    {".onnx_data", ""},
    {".h5.index.json", ""},
    {".msgpack.index.json", ""},
    {".npz", ""},
    {".safetensors.index.json", ""},
});

struct Magic {
  std::string_view bytes;
  std::string_view kind;
};

constexpr auto kMagics = std::to_array<Magic>({
    {"\x80\x02", "a bare pickle, not PyTorch's"},
    {"\x80\x04", "a bare pickle, not PyTorch's"},
    {"\x89HDF\r\n", "HDF5"},
});

[[noreturn]] void refuse(const fs::path& path, std::string_view kind) {
  throw Error(ErrorCode::kUnsupported, printable_path(path) + ": this is " + std::string(kind) +
                                           ", which this version does not read yet; give the model as safetensors");
}

const UnreadFormat* unread_format(std::string_view name) {
  const auto row = std::ranges::find_if(kUnreadFormats, [&](const auto& r) { return name.ends_with(r.extension); });
  return row == kUnreadFormats.end() ? nullptr : &*row;
}

// Whether a file holds weights that are not safetensors, by its name.
bool is_other_weights(std::string_view name) { return format_by_name(name) || unread_format(name); }

// What a file of weights is that no format reads; empty: never the model itself.
std::string_view kind_of_unread(std::string_view name) {
  if (const Format* format = format_by_name(name)) return format->by_name_only;
  const UnreadFormat* format = unread_format(name);
  return format ? format->kind : std::string_view();
}

std::vector<std::string> file_names(const fs::path& directory) {
  std::vector<std::string> names;
  for (const fs::path& path : entries(directory)) {
    std::string name = path.filename().string();
    // A dangling link is no file.
    if (!name.starts_with('.') && files::is_regular_file(path)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  for (const std::string& name : names) check_link(directory, name);
  return names;
}

void read_index(const fs::path& directory, DirectoryContents& out) {
  ShardIndex index = read_shard_index(directory, kIndexFile, ".safetensors");
  out.weight_map = std::move(index.weight_map);
  out.data_files = std::move(index.shards);
}

// Whether the folder's model is a pickle by its name, so that safetensors of other names are something else.
bool has_pickled_model(const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [](const std::string& name) {
    return name == "pytorch_model.bin" || name == "pytorch_model.bin.index.json";
  });
}

// Without an index: "model.safetensors", else "model*.safetensors", else all there are.
std::vector<std::string> choose_data_files(const std::vector<std::string>& candidates,
                                           const std::vector<std::string>& names) {
  if (std::ranges::find(candidates, kSingleFile) != candidates.end()) return {kSingleFile};
  std::vector<std::string> chosen;
  std::ranges::copy_if(candidates, std::back_inserter(chosen),
                       [](const auto& name) { return name.starts_with("model"); });
  return chosen.empty() && !has_pickled_model(names) ? candidates : chosen;
}

void check_single_is_not_stale(const fs::path& directory, const DirectoryContents& contents,
                               const std::vector<std::string>& candidates) {
  const bool has_single = std::ranges::find(candidates, kSingleFile) != candidates.end();
  if (!has_single || std::ranges::find(contents.data_files, kSingleFile) != contents.data_files.end()) return;
  throw Error(ErrorCode::kCorrupt, printable_path(directory) + ": both " + kSingleFile + " and " + kIndexFile +
                                       " are here, and the index does not name the former; delete the stale one");
}

[[noreturn]] void fail_without_weights(const fs::path& directory, const DirectoryContents& contents) {
  for (const fs::path& file : contents.other_weights) {
    if (const std::string_view kind = kind_of_unread(file.string()); !kind.empty()) refuse(directory / file, kind);
  }
  throw Error(ErrorCode::kNotFound,
              printable_path(directory) + ": no *.safetensors file is in this folder; is it a checkpoint?");
}

}  // namespace

const Format* check_format(const fs::path& file) {
  const InputFile input(file);
  const auto first = std::ranges::find_if(
      formats(), [&](const Format& format) { return format.is_never_safetensors && format.is_format(input); });
  if (first != formats().end()) return &*first;
  // A safetensors file starts with its header's length, which may look like any magic; the '{' after it decides.
  std::array<char, 1> brace{};
  if (input.size_bytes() > 8) input.read(8, std::as_writable_bytes(std::span(brace)));
  if (brace[0] == '{') return nullptr;
  if (const Format* format = format_of(input)) return format;
  std::string start(std::min<std::uint64_t>(input.size_bytes(), 8), '\0');
  input.read(0, std::as_writable_bytes(std::span(start)));
  for (const Magic& magic : kMagics) {
    if (start.starts_with(magic.bytes)) refuse(file, magic.kind);
  }
  return nullptr;
}

namespace {

// The first format of which the folder has a model.
void pick_other_format(const fs::path& directory, const std::vector<std::string>& names, DirectoryContents& out) {
  for (const Format& format : formats()) {
    out.data_files = format.pick(directory, names);
    if (out.data_files.empty()) continue;
    out.format = &format;
    const auto is_data = [&](const fs::path& name) {
      return std::ranges::find(out.data_files, name.string()) != out.data_files.end();
    };
    std::erase_if(out.other_weights, is_data);
    if (format.is_read_too)
      std::erase_if(out.other_weights, [&](const fs::path& name) { return format.is_read_too(name.string()); });
    std::erase_if(out.side_files, is_data);
    return;
  }
}

}  // namespace

DirectoryContents list_checkpoint(const fs::path& directory) {
  DirectoryContents out;
  std::vector<std::string> candidates;
  const std::vector<std::string> names = file_names(directory);
  for (const std::string& name : names) {
    if (name == kConfigFile) {
      out.has_config = true;
    } else if (name == kIndexFile) {
      out.has_index = true;
    } else if (name == kManifestFile) {
      out.has_manifest = true;
    } else if (name.ends_with(".safetensors")) {
      candidates.push_back(name);
    } else if (name.ends_with(".py")) {
      out.remote_code.emplace_back(name);
    } else if (is_other_weights(name)) {
      out.other_weights.emplace_back(name);
    } else {
      out.side_files.emplace_back(name);
    }
  }
  if (out.has_index) {
    read_index(directory, out);
    check_single_is_not_stale(directory, out, candidates);
  } else {
    out.data_files = choose_data_files(candidates, names);
    check_shard_count(directory, out.data_files);
  }
  for (const std::string& name : candidates) {
    if (std::ranges::find(out.data_files, name) == out.data_files.end()) out.other_weights.emplace_back(name);
  }
  if (out.data_files.empty()) pick_other_format(directory, names, out);
  if (out.data_files.empty()) fail_without_weights(directory, out);
  return out;
}

}  // namespace halfbyte::files

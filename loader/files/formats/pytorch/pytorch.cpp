#include "loader/files/formats/pytorch/pytorch.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/formats/pytorch/strided_bytes.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"
#include "loader/files/row_bytes.h"
#include "loader/files/shards.h"
#include "loader/files/translation.h"
#include "models/json/field.h"

namespace halfbyte::files {
namespace {

constexpr const char* kPickleIndexFile = "pytorch_model.bin.index.json";
constexpr const char* kPickleFile = "pytorch_model.bin";
constexpr auto kExtensions = std::to_array<std::string_view>({".bin", ".pth", ".pt", ".ckpt"});

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool has_extension(const std::string& name) {
  return std::ranges::any_of(kExtensions, [&](std::string_view extension) { return name.ends_with(extension); });
}

std::vector<std::string> starting_with(const std::vector<std::string>& names, std::string_view prefix) {
  std::vector<std::string> out;
  std::ranges::copy_if(names, std::back_inserter(out),
                       [&](const std::string& name) { return name.starts_with(prefix) && name.ends_with(".bin"); });
  return out;
}

// Without the usual names: the only one there is.
std::vector<std::string> pick_lone(const fs::path& directory, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (has_extension(name) && is_pytorch(InputFile(directory / name))) out.push_back(name);
  }
  if (out.size() < 2) return out;
  throw Error(ErrorCode::kUnsupported, printable_path(directory) + ": has " + std::to_string(out.size()) +
                                           " PyTorch pickles, " + printable(out[0]) + " and others, and none is " +
                                           kPickleFile + "; give one of the files");
}

// Every tensor that the index names is where it says.
void check_listed(const Checkpoint& checkpoint, const ShardIndex& index) {
  for (const auto& [name, shard] : index.weight_map) {
    const StoredTensor* found = checkpoint.find(name);
    if (found && checkpoint.data_files[found->file]->path().filename() == shard) continue;
    throw Error(ErrorCode::kCorrupt, printable_path(checkpoint.directory / kPickleIndexFile) + ": tensor " +
                                         in_quotes(name) + " is listed in " + printable(shard) +
                                         ", which does not hold it; download the checkpoint again");
  }
}

void add_notes(const fs::path& path, const PytorchFile& read, Checkpoint& checkpoint) {
  for (const std::string& note : read.notes) checkpoint.notes.push_back(printable_path(path.filename()) + ": " + note);
}

}  // namespace

std::vector<std::string> pick_pytorch(const fs::path& directory, const std::vector<std::string>& names) {
  if (has(names, kPickleIndexFile)) return read_shard_index(directory, kPickleIndexFile, ".bin").shards;
  if (has(names, kPickleFile)) return {kPickleFile};
  std::vector<std::string> shards = starting_with(names, "pytorch_model-");
  check_shard_count(directory, shards);
  return shards.empty() ? pick_lone(directory, names) : shards;
}

std::unique_ptr<TensorBytes> bytes_of_view(const std::shared_ptr<const DataFile>& file, const TensorView& view) {
  if (!view.is_contiguous()) return std::make_unique<StridedBytes>(file, view);
  return std::make_unique<OrderedRows>(file, view.offset, 1, RowOrder{static_cast<std::int64_t>(view.size_bytes)});
}

std::vector<TensorRecord> open_pytorch(std::span<const fs::path> paths, Checkpoint& checkpoint) {
  std::vector<PytorchFile> read;
  for (const fs::path& path : paths) {
    auto file = std::make_shared<InputFile>(path);
    read.push_back(read_pytorch(*file));
    add_notes(path, read.back(), checkpoint);
    checkpoint.data_files.push_back(std::move(file));
    checkpoint.data_offsets.push_back(0);
  }
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Translation translation(checkpoint, paths[i]);
    for (const TensorView& view : read[i].tensors) {
      if (view.is_contiguous()) {
        checkpoint.tensors.push_back({view.name, view.dtype, view.shape, i, view.offset, view.size_bytes});
      } else {
        translation.add(view.name, view.dtype, view.shape, bytes_of_view(checkpoint.data_files[i], view));
      }
    }
    translation.finish();
  }
  const fs::path index = checkpoint.directory / kPickleIndexFile;
  if (paths.size() > 1 && files::is_regular_file(index))
    check_listed(checkpoint, read_shard_index(checkpoint.directory, kPickleIndexFile, ".bin"));
  return {};
}

}  // namespace halfbyte::files

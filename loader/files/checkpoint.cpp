#include "loader/files/checkpoint.h"

#include <algorithm>
#include <numeric>
#include <system_error>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/directory.h"
#include "loader/files/file_tree.h"
#include "loader/files/json_text.h"
#include "loader/files/manifest_check.h"
#include "loader/files/not_weights.h"
#include "loader/files/printable.h"
#include "loader/files/safetensors.h"

namespace halfbyte::files {
namespace {

void add_data_file(const fs::path& path, Checkpoint& out) {
  auto input = std::make_shared<InputFile>(path);
  SafetensorsHeader header = read_safetensors_header(*input);
  out.data_files.push_back(std::move(input));
  out.data_offsets.push_back(header.data_offset);
  const std::size_t file = out.data_files.size() - 1;
  for (SafetensorsEntry& entry : header.entries) {
    out.size_bytes += entry.size_bytes;
    out.tensors.push_back(
        {std::move(entry.name), entry.dtype, std::move(entry.shape), file, entry.offset, entry.size_bytes});
  }
}

// What is kept of a tensor takes more than its line in a header: without a bound relative to the data, a file of
// nothing but names would take many times its size of memory.
constexpr std::size_t kManyTensors = 65'536;
constexpr std::uint64_t kLeastMeanBytes = 1024;

void check_count(const Checkpoint& checkpoint) {
  const std::size_t count = checkpoint.tensors.size();
  if (count <= kManyTensors) return;
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : checkpoint.tensors) bytes += tensor.size_bytes;
  if (bytes / count >= kLeastMeanBytes) return;
  const bool is_one = checkpoint.data_files.size() == 1;
  throw Error(ErrorCode::kUnsupported,
              printable_path(is_one ? checkpoint.data_files.front()->path() : checkpoint.directory) + ": " +
                  std::to_string(count) + " tensors hold " + printable_bytes(bytes) + " together; more than " +
                  std::to_string(kManyTensors) + " are read where they hold " + std::to_string(kLeastMeanBytes) +
                  " bytes each, or more, on average");
}

}  // namespace

void index_tensors(Checkpoint& out) {
  check_count(out);
  std::ranges::sort(out.tensors, {}, [](const StoredTensor& t) { return std::pair(t.file, t.offset); });
  out.by_name.resize(out.tensors.size());
  std::iota(out.by_name.begin(), out.by_name.end(), 0U);
  const auto name_of = [&](std::uint32_t i) -> const std::string& { return out.tensors[i].name; };
  std::ranges::sort(out.by_name, {}, name_of);
  const auto twice = std::ranges::adjacent_find(out.by_name, {}, name_of);
  if (twice == out.by_name.end()) return;
  const auto file_of = [&](std::uint32_t i) {
    return printable_path(out.data_files[out.tensors[i].file]->path().filename());
  };
  throw Error(ErrorCode::kCorrupt, printable_path(out.directory) + ": tensor " + in_quotes(name_of(*twice)) +
                                       " is in two files, " + file_of(*twice) + " and " + file_of(*(twice + 1)));
}

namespace {

// Every tensor is where the index says, and every one that the index names is there.
void check_index(const Checkpoint& checkpoint, const DirectoryContents& contents) {
  const std::string where = printable_path(checkpoint.directory / kIndexFile) + ": tensor ";
  for (const StoredTensor& tensor : checkpoint.tensors) {
    const std::string file = checkpoint.data_files[tensor.file]->path().filename().string();
    const auto listed = contents.weight_map.find(tensor.name);
    if (listed == contents.weight_map.end()) {
      throw Error(ErrorCode::kCorrupt, where + in_quotes(tensor.name) + " of " + printable(file) + " is not listed");
    }
    if (listed->second != file) {
      throw Error(ErrorCode::kCorrupt, where + in_quotes(tensor.name) + " is listed in " + printable(listed->second) +
                                           " but lies in " + printable(file));
    }
  }
  for (const auto& [tensor, file] : contents.weight_map) {
    if (checkpoint.find(tensor)) continue;
    throw Error(ErrorCode::kCorrupt, where + in_quotes(tensor) + " is listed in " + printable(file) +
                                         ", which does not hold it; download the checkpoint again");
  }
}

void read_config(Checkpoint& out) {
  const fs::path path = out.directory / kConfigFile;
  out.config =
      parse_json<nlohmann::ordered_json>(read_text(path, kConfigLimits.max_bytes), printable_path(path), kConfigLimits);
  if (!out.config->is_object()) throw Error(ErrorCode::kCorrupt, printable_path(path) + ": not a JSON object");
  out.architecture = models::find_architecture(nlohmann::json(*out.config));
}

void read_manifest(Checkpoint& out) {
  const fs::path path = out.directory / kManifestFile;
  out.manifest = parse_manifest(read_text(path, kManifestLimits.max_bytes), printable_path(path));
  if (const std::int64_t minor = out.manifest.format_minor; minor > kFormatMinor) {
    const std::string major = std::to_string(kFormatVersion) + ".";
    out.notes.push_back("halfbyte.json is of format version " + major + std::to_string(minor) +
                        "; this halfbyte reads " + major + std::to_string(kFormatMinor) +
                        ", and what the newer one adds is not used");
  }
}

// A config.json of the user's is believed before what the format says.
std::vector<TensorRecord> open_other_format(const Format& format, std::span<const fs::path> paths, Checkpoint& out) {
  const nlohmann::ordered_json config = *out.config;
  out.kind = format.kind;
  std::vector<TensorRecord> packed = format.open(paths, out);
  if (!config.is_null()) out.config = config;
  out.architecture = models::find_architecture(nlohmann::json(*out.config));
  index_tensors(out);
  return packed;
}

void open_directory(const fs::path& path, Checkpoint& out) {
  out.directory = path;
  DirectoryContents contents = list_checkpoint(path);
  std::vector<TensorRecord> packed;
  if (contents.has_config) {
    read_config(out);
    out.has_config_file = true;
  }
  if (contents.format) {
    std::vector<fs::path> paths;
    for (const std::string& name : contents.data_files) paths.push_back(path / name);
    packed = open_other_format(*contents.format, paths, out);
  } else {
    for (const std::string& name : contents.data_files) add_data_file(path / name, out);
    index_tensors(out);
    if (contents.has_index) check_index(out, contents);
  }
  if (out.config->is_null()) out.notes.push_back("there is no config.json; the family of the model is not known");
  out.side_files = std::move(contents.side_files);
  for (const fs::path& name : out.side_files) out.generated_files.erase(name.string());
  out.remote_code = std::move(contents.remote_code);
  out.other_weights = std::move(contents.other_weights);
  if (contents.has_manifest) {
    read_manifest(out);
    out.kind = "halfbyte";
  } else {
    out.manifest = derive_manifest(out, std::move(packed));
  }
}

// Codes without the words that explain them.
void refuse_packed(const fs::path& path, const Checkpoint& checkpoint) {
  for (const StoredTensor& tensor : checkpoint.tensors) {
    if (!tensor.name.ends_with(".weight_packed")) continue;
    throw Error(ErrorCode::kUnsupported, printable_path(path) + ": tensor " + in_quotes(tensor.name) +
                                             " is packed, which the files beside it explain; give the directory");
  }
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

// Whether a file is, alone, the weights of the checkpoint whose folder it lies in. Errors: kInvalidArgument when it is
// one of several.
bool is_whole_model(const fs::path& file) {
  DirectoryContents around;
  try {
    around = list_checkpoint(folder_of(file));
  } catch (const Error&) {  // what is wrong with the rest of the folder is no matter of this file's
    return false;
  }
  const bool is_its = std::ranges::find(around.data_files, file.filename().string()) != around.data_files.end();
  if (!around.has_config || !is_its) return false;
  if (around.data_files.size() == 1) return true;
  throw Error(ErrorCode::kInvalidArgument, printable_path(file) + ": is one of the " +
                                               std::to_string(around.data_files.size()) + " files of a model; give " +
                                               printable_path(folder_of(file)) + ", the directory");
}

void open_file(const fs::path& path, Checkpoint& out) {
  const Format* format = check_format(path);
  if ((!format || !format->is_self_contained) && is_whole_model(path)) return open_directory(folder_of(path), out);
  out.directory = path.parent_path();
  std::vector<TensorRecord> packed;
  // config.json, an index or a text is what people name too.
  if (!format)
    refuse_not_weights(InputFile(path),
                       "give the directory, " + printable_path(folder_of(path)) + ", or a file of weights");
  if (format) {
    packed = open_other_format(*format, std::span(&path, 1), out);
  } else {
    add_data_file(path, out);
    index_tensors(out);
    refuse_packed(path, out);
  }
  if (out.config->is_null())
    out.notes.push_back("a single file without config.json; the family of the model is not known");
  out.manifest = derive_manifest(out, std::move(packed));
}

[[noreturn]] void fail_not_found(const fs::path& path) {
  const std::string text = printable_path(path);
  const bool may_be_a_model_id = std::ranges::count(text, '/') == 1 && !text.starts_with('/') && !text.starts_with('.');
  throw Error(ErrorCode::kNotFound, may_be_a_model_id ? text + " is not a directory here; download the checkpoint first"
                                                      : text + ": there is no such file or directory");
}

}  // namespace

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(by_name, name, {}, [&](std::uint32_t i) { return std::string_view(tensors[i].name); });
  return found != by_name.end() && tensors[*found].name == name ? &tensors[*found] : nullptr;
}

bool Checkpoint::is_quantized() const {
  return std::ranges::any_of(manifest.tensors, [](const TensorRecord& tensor) { return tensor.scheme != nullptr; });
}

bool Checkpoint::has_config() const { return !config->is_null(); }

models::ModelConfig Checkpoint::model_config() const {
  models::ModelConfig out = architecture->parse(nlohmann::json(*config));
  architecture->choose_naming(out, [&](const std::string& name) { return manifest.find(name) || find(name); });
  return out;
}

Checkpoint open_checkpoint(const fs::path& path) {
  Checkpoint out;
  const bool is_folder = files::is_directory(path);  // what cannot be looked at is not what is not there
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (fs::exists(fs::symlink_status(path, error)))
      throw Error(ErrorCode::kNotFound, printable_path(path) + ": is a link that leads nowhere");
    fail_not_found(path);
  }
  if (is_folder) {
    open_directory(path, out);
  } else {
    open_file(path, out);
  }
  check_manifest(out);
  return out;
}

void assume_original(Checkpoint& checkpoint, Dtype dtype) {
  std::int64_t count = 0;
  for (TensorRecord& record : checkpoint.manifest.tensors) {
    const bool is_assumed = !record.original_dtype && (record.scheme || is_floating(record.stored_dtype));
    if (!is_assumed) continue;
    record.original_dtype = dtype;
    ++count;
  }
  checkpoint.notes.push_back(std::to_string(count) + (count == 1 ? " tensor is" : " tensors are") +
                             " taken to have been " + std::string(name(dtype)));
}

void read_stored(const Checkpoint& checkpoint, const StoredTensor& tensor, std::uint64_t begin,
                 std::span<std::byte> out) {
  checkpoint.data_files[tensor.file]->read(tensor.offset + begin, out);
}

bool is_translated(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return !checkpoint.data_files[tensor.file]->is_on_disk();
}

std::shared_ptr<MappedFile> map_data_file(const Checkpoint& checkpoint, std::size_t file) {
  return std::make_shared<MappedFile>(checkpoint.data_files.at(file)->path());
}

}  // namespace halfbyte::files

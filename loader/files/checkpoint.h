// A checkpoint on disk, opened and checked but not read: its files, its tensors, its configuration, its manifest.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "loader/files/manifest.h"
#include "loader/files/platform.h"

namespace halfbyte::files {

struct StoredTensor {
  std::string name;
  Dtype dtype;
  std::vector<std::int64_t> shape;
  std::size_t file;      // index into Checkpoint::data_files
  std::uint64_t offset;  // from the start of that file
  std::uint64_t size_bytes;
};

// Computes the bytes of a file; nothing is computed before it is called.
using GeneratedFile = std::function<std::string()>;

struct Checkpoint {
  fs::path directory;                                 // of a lone file: the folder it lies in
  models::HeldOrderedJson config;                     // config.json; null when nothing says what the model is
  std::string kind = "safetensors";                   // of the source, for people: "GGUF", "GPTQ" ...
  std::vector<std::shared_ptr<DataFile>> data_files;  // in name order; translated ones last
  std::vector<std::uint64_t> data_offsets;            // per data file: where tensor data begin
  std::vector<StoredTensor> tensors;                  // by file, then by offset
  std::vector<fs::path> side_files;                   // relative: tokenizer, generation_config, licence ...
  // What the source says in another form (GGUF's metadata), as the files it would be beside a checkpoint, by name.
  // None of them lies there.
  std::map<std::string, GeneratedFile> generated_files;
  bool has_config_file = false;  // else `config` was made from what the source says, or is null
  // The file says by itself which model it is of, and so which tensors it must have (check_complete).
  bool says_its_model = false;
  // The program that made it rounds the values of a packed weight to the weight's original dtype.
  bool rounds_values = false;
  std::vector<fs::path> remote_code;    // relative: *.py, never copied or run
  std::vector<fs::path> other_weights;  // relative: weights in other formats or beside the index; not read
  std::vector<std::string> notes;       // about this checkpoint, for the user
  Manifest manifest;                    // read, or derived (is_derived)
  // Dense stacks that hold rows here although their family stores columns (turn_stacks).
  std::set<std::string> row_stacks;
  const models::Architecture* architecture = nullptr;  // null: unknown family
  std::uint64_t size_bytes = 0;                        // of tensor data

  const StoredTensor* find(std::string_view name) const;  // by name, logarithmic
  bool is_quantized() const;                              // some tensor has a scheme
  bool has_config() const;                                // `config` is not null
  // As the architecture, which must be known, reads `config`, under the naming that the tensors bear out.
  models::ModelConfig model_config() const;
  std::vector<std::uint32_t> by_name;  // index for find()
};

// Opens a directory (single or sharded safetensors) or one .safetensors file, detected by content.
// Checks headers, the shard index (missing shards, names listed and absent, names in two shards), the manifest against
// the tensors (every part present, shapes and dtypes as the scheme says), names that would leave the directory.
// Errors: kNotFound ("org/model" that is no directory: download it first), kCorrupt, kUnsupported.
Checkpoint open_checkpoint(const fs::path& path);

// Sorts the tensors by file and offset and makes the index of names. Errors: kCorrupt when a name is there twice.
void index_tensors(Checkpoint& checkpoint);

// Takes `dtype` for the original one of every floating tensor of which none is on record, and notes that it did.
void assume_original(Checkpoint& checkpoint, Dtype dtype);

// Reads part of a stored tensor. Errors: as DataFile::read. Thread-safe.
void read_stored(const Checkpoint& checkpoint, const StoredTensor& tensor, std::uint64_t begin,
                 std::span<std::byte> out);

// Whether the tensor's bytes are computed from another layout.
bool is_translated(const Checkpoint& checkpoint, const StoredTensor& tensor);

// One data file mapped whole; keep the pointer as long as the bytes are used. The file must be on the disk.
std::shared_ptr<MappedFile> map_data_file(const Checkpoint& checkpoint, std::size_t file);

}  // namespace halfbyte::files

// halfbyte.json: what every tensor was before, and where it is now. Read here, written by convert/. docs/format.md has
// it field by field.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <halfbyte/dtype.h>
#include <halfbyte/scheme.h>

#include "models/architectures/architecture.h"
#include "models/architectures/name_pattern.h"

namespace halfbyte::files {

inline constexpr int kFormatVersion = 1;  // the major version
inline constexpr int kFormatMinor = 0;
inline constexpr const char* kManifestFile = "halfbyte.json";

struct SourceFile {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::string xxh3_128;  // 32 hexadecimal digits; empty: not known
};

// A file of the checkpoint itself. Of a data file only the safetensors header is hashed here: each tensor has a hash of
// its own. Every other file is hashed whole.
struct FileRecord {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::uint64_t hashed_bytes = 0;  // the hash is over this many bytes from the start
  std::string xxh3_128;
};

using halfbyte::kPartCount;
using halfbyte::Part;

// Names in the checkpoint by part; empty: there is none.
struct TensorParts {
  std::array<std::string, kPartCount> names;

  std::string& operator[](Part part) noexcept { return names[static_cast<std::size_t>(part)]; }
  const std::string& operator[](Part part) const noexcept { return names[static_cast<std::size_t>(part)]; }
  bool has(Part part) const noexcept { return !(*this)[part].empty(); }
};

struct RecordedError {
  double rel_rmse = 0;
  double max_abs = 0;
};

struct TensorRecord {
  std::string name;
  bool is_buffer = false;
  std::vector<std::int64_t> shape;       // as it was
  std::optional<Dtype> original_dtype;   // nothing: not known
  const Scheme* scheme = nullptr;        // null: stored dense, as stored_dtype
  Dtype stored_dtype = Dtype::kFloat32;  // dense only
  Dtype scale_dtype = Dtype::kBfloat16;  // packed only; uint8 when the scales are nested
  std::int64_t group_size = 0;           // packed only; in_features for one scale a row
  std::optional<float> nested_offset;    // nested scales only: scale = codebook[byte] * nested scale + offset
  TensorParts parts;
  std::uint64_t size_bytes = 0;  // of all parts
  std::string xxh3_128;          // over the bytes of all parts in the order of Part; empty: not known
  std::optional<RecordedError> error;
};

struct Manifest {
  std::int64_t format_minor = 0;
  std::string created_by;
  std::string source_kind;  // "safetensors"
  std::vector<SourceFile> source_files;
  std::optional<Dtype> declared_dtype;
  models::HeldJson conversion;        // options that decided the bytes, for people and for the converter; or null
  std::vector<TensorRecord> tensors;  // by name
  std::vector<models::DerivedBuffer> buffers;
  std::vector<std::pair<std::string, std::string>> ties;  // alias, owner
  std::map<std::string, std::string> kept;                // name -> why it was not quantised
  std::string recommended_dtype = "amp:bfloat16";
  std::vector<std::string> keep_float32;  // patterns ('*' wildcard)
  std::vector<FileRecord> files;          // of the checkpoint, except the manifest
  bool is_derived = false;                // there was no halfbyte.json: made from config.json and the tensors

  const TensorRecord* find(std::string_view name) const;
};

// JSON text of the manifest, keys in a fixed order, and back. Every field is range-checked; unknown keys are ignored.
// The last key is the text's own hash, taken with zeros in the place of its digits.
// Errors of parse: kCorrupt naming the field; kUnsupported naming the format version or the scheme.
std::string manifest_to_json(const Manifest& manifest);
Manifest parse_manifest(std::string_view json, const std::string& file_name);

// Whether the text's own hash is there and right. The loader does not ask: a manifest may be edited by hand. verify
// does.
bool manifest_hash_matches(std::string_view json);

using models::matches_pattern;

}  // namespace halfbyte::files

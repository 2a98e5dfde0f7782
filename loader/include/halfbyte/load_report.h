// What loading did with every tensor: recorded dtype, loaded dtype, bytes, mapped or cast. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/dtype.h>

namespace halfbyte {

enum class Placement {
  kMapped,   // used where the file is mapped: no memory of its own
  kCast,     // copied into another dtype
  kCopied,   // copied as it is (the file does not align it, or has another layout)
  kDerived,  // computed from config.json
  kMoved,    // copied to another device than the CPU, cast or not
};

const char* name(Placement placement) noexcept;

struct LoadedTensor {
  std::string name;
  bool is_buffer = false;
  std::optional<Dtype> recorded;  // before quantisation; nothing: the file does not say
  std::string loaded;             // a dtype, or a scheme with its group size ("sym_int4 g64")
  std::uint64_t bytes = 0;
  Placement placement = Placement::kMapped;
  std::string note;  // "tied to ...", "kept in float32", "override ..."
  // Of a Linear weight: the dtype in which its product takes activations. Else empty.
  std::string operand = {};
};

// A library that halfbyte calls. An empty version is not known.
struct LibraryVersion {
  std::string name;  // "LibTorch"
  std::string built_against;
  std::string running;
};

struct LoadReport {
  std::vector<LoadedTensor> tensors;
  std::vector<std::string> notes;  // whole-model remarks
  std::string policy;              // "amp:bfloat16"
  std::string operand_dtype;       // of products
  std::string stream_dtype;        // of all between products
  std::string compute;             // of products with packed integer codes: "float", "int8"
  std::string key_values;          // what they are kept in: a dtype, or "int8"
  std::string device;              // "cpu", "cuda:0"
  std::string device_reason;       // "asked for", "auto: ..."
  std::vector<LibraryVersion> versions;
  bool is_manifest_derived = false;
  // With Verification::kHashes: tensors whose bytes were compared with their hash, and those that have none on record.
  std::size_t verified_tensors = 0;
  std::size_t unhashed_tensors = 0;
  // Of config.json, of tensors' names and shapes, and of their hashes on record: what tells this checkpoint from others
  // (PromptCacheFile). Without a hash for each tensor it has the files' sizes and times instead.
  std::string identity;
  bool identity_has_values = false;

  // Units: bytes.
  std::uint64_t bytes_with(Placement placement) const noexcept;
};

}  // namespace halfbyte

// Whether a checkpoint on disk is sound, and whether it is the one that is meant. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace halfbyte {

struct VerifyOptions {
  // The hash that the checkpoint must have, as an earlier verify() gave it; empty: any.
  std::string expect = {};
  // Called now and then with bytes read and in all, by one thread at a time; what it throws ends the call.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct Verified {
  // Of the whole checkpoint: 32 hexadecimal digits, docs/format.md, section 3. It finds what was damaged or exchanged,
  // not what somebody forged: XXH3 is no cryptographic hash.
  std::string hash;
  std::int64_t tensors_hashed = 0;    // compared with the hash on record
  std::int64_t tensors_unhashed = 0;  // none is on record: only names, shapes and values were checked
  std::vector<std::string> problems;  // one line each; empty: none was found
};

// Reads every byte of a checkpoint in any format that is read. Errors: kInvalidArgument when `expect` is no hash;
// kCorrupt with both hashes when the checkpoint has another; as opening it.
Verified verify(const std::filesystem::path& path, const VerifyOptions& options = {});

}  // namespace halfbyte

// What every way of loading a checkpoint can be told. Needs no LibTorch.
#pragma once

#include <string>
#include <vector>

#include <halfbyte/dtype_policy.h>

namespace halfbyte {

// Whether what is loaded is read in full and compared with the hashes on record first. Without, pages are read when
// they are used, and damaged values go unnoticed.
enum class Verification { kNone, kHashes };

struct LoadOptions {
  DtypePolicy dtype = DtypePolicy::amp(Dtype::kBfloat16);
  // Patterns of tensors that stay in (or become) float32 whatever the policy, besides those the manifest names.
  std::vector<std::string> keep_float32 = {};
  Verification verify = Verification::kNone;
};

}  // namespace halfbyte

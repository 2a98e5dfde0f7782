// What every way of loading a checkpoint can be told. Needs no LibTorch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <halfbyte/device.h>
#include <halfbyte/dtype_policy.h>
#include <halfbyte/group.h>
#include <halfbyte/key_values.h>

namespace halfbyte {

// Whether what is loaded is read in full and compared with the hashes on record first. Without, pages are read when
// they are used, and damaged values go unnoticed.
enum class Verification { kNone, kHashes };

// Another policy for some modules or tensors. `pattern` is matched against tensor names and those of the modules that
// hold them: '*' any run of characters, '?' one; without either, whole dotted parts.
struct DtypeOverride {
  std::string pattern;
  DtypePolicy policy;
};

// How products with packed integer codes are computed on the CPU: in floats, or with the activation rounded to 8 bits,
// group by group, and exact integer sums. kAuto: 4-bit codes with 8 bits, and 8-bit codes in floats, where this CPU is
// faster so, under amp; an explicit policy asks for arithmetic in its dtype. Products that an override or keep_float32
// leaves in float32 stay in floats.
enum class ComputeMode { kAuto, kFloat, kInt8 };

struct LoadOptions {
  DtypePolicy dtype = DtypePolicy::amp(Dtype::kBfloat16);
  // Patterns, as DtypeOverride's, of what stays in (or becomes) float32 whatever the policy, besides what the manifest
  // names. The product of such a Linear, packed ones included, takes its activation in float32. One that matches
  // nothing is an error.
  std::vector<std::string> keep_float32 = {};
  Verification verify = Verification::kNone;
  // The policy of what matches instead of `dtype`: the dtype of its parameters and buffers, and the operands of a
  // Linear's product. The residual stream stays that of `dtype`. The last match wins; keep_float32 wins over all. One
  // that matches nothing is an error.
  std::vector<DtypeOverride> overrides = {};
  // Where the tensors go, one after another, once they are read. Device::parse("auto") takes the best that is there.
  Device device = {};
  ComputeMode compute = ComputeMode::kAuto;  // kInt8 on another device than the CPU is an error
  KeyValues key_values = KeyValues::kOperand;
  // Of ranks that run one model together (<halfbyte/group.h>), on the CPU: each loads the same checkpoint by the same
  // options, and keeps its part. Null: all of it is here.
  std::shared_ptr<Group> group = {};
  // How many stages of layers the ranks are in, for links too slow to add up parts of every layer: the first size() /
  // pipeline of them have the first layers, and so on, and divide those among them. 1: all ranks divide all layers.
  int pipeline = 1;
  // What layers give goes between machines in this dtype, float32 or bfloat16 (half the bytes), and is added in
  // float32.
  Dtype reduce_dtype = Dtype::kFloat32;
};

}  // namespace halfbyte

// Fills a host's own torch::nn::Module from a checkpoint: dequantised, cast, and checked before anything changes.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <halfbyte/dtype.h>
#include <halfbyte/dtype_policy.h>
#include <halfbyte/error.h>
#include <halfbyte/load_options.h>

namespace halfbyte {

struct RestoreOptions {
  // Nothing: every tensor of the module keeps its dtype, as PyTorch's load_state_dict has it. A policy: every floating
  // parameter and buffer, found in the checkpoint or not, takes the dtype that the policy gives it, in place; gradients
  // of what changes dtype are dropped.
  std::optional<DtypePolicy> dtype = std::nullopt;
  // Patterns, matched against the checkpoint's and the module's names, of what becomes float32 whatever the policy.
  std::vector<std::string> keep_float32 = {};
  Verification verify = Verification::kNone;
  // The checkpoint's name -> the module's. An empty result leaves that tensor out, unmentioned.
  std::function<std::string(const std::string& name)> rename = {};
  // Patterns of buffers that the module computes and no checkpoint need hold: LibTorch's C++ modules cannot mark them.
  std::vector<std::string> non_persistent = {};
  // false: what does not fit is reported instead of being an error, and the rest is restored.
  bool strict = true;
  // Where the module's tensors on Meta are made.
  at::Device device = at::kCPU;
};

struct RestoredTensor {
  std::string name;             // the module's
  std::string checkpoint_name;  // the checkpoint's
  bool is_buffer = false;
  std::optional<Dtype> recorded;  // before quantisation
  std::string stored;             // a dtype, or a scheme with its group size
  std::string before;             // the module's dtype ...
  std::string loaded;             // ... and what it is now; a scheme where a LowBitLinear took the packed weight
};

struct RestoreReport {
  std::vector<RestoredTensor> restored;
  std::vector<std::string> cast;        // of the module: changed dtype, restored or not
  std::vector<std::string> derived;     // of the module: its own values were left, the checkpoint only derives them
  std::vector<std::string> missing;     // of the module: not in the checkpoint
  std::vector<std::string> unused;      // of the checkpoint: not in the module
  std::vector<std::string> mismatched;  // in both, but of different shapes or kinds: "name: [..] here, [..] there"
  std::vector<std::string> notes;
};

// Copies every tensor of the checkpoint into the parameter or buffer of its name. Parameters keep their identity:
// members of the module and optimizers that hold them see the new values. Tied ones stay tied, whatever layout and
// device they have is kept, those on Meta are made on options.device, and a LowBitLinear takes a packed weight as it
// lies in the file. One tensor's values exist beside the module's at a time. Errors, before anything was changed:
// kInvalidArgument naming what is missing, unused or mismatched (strict), or two tensors renamed to one; kNotFound,
// kCorrupt, kUnsupported as load_low_bit. Later ones: kNoResources, kContract (finite values that do not fit float16).
RestoreReport restore_into(torch::nn::Module& module, const std::filesystem::path& checkpoint,
                           const RestoreOptions& options = {});

}  // namespace halfbyte

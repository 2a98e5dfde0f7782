// LibTorch's and oneDNN's exceptions become halfbyte's: one line with what was attempted, why it cannot be, and what to
// change. For every call into LibTorch that a user's data or choice of dtype, device or policy can make fail.
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include <halfbyte/backend_error.h>

namespace halfbyte {

// "bfloat16 [3, 128] on cpu"; "undefined".
std::string describe(const at::Tensor& tensor);

struct NamedTensor {
  const char* name;
  const at::Tensor& tensor;
};
// "input float32 [3, 128] on cpu, weight bfloat16 [64, 128] on cpu"; undefined ones are left out.
std::string describe(std::initializer_list<NamedTensor> tensors);

// Why LibTorch or oneDNN refused, in our words: "tensors of different dtypes met in one operation".
std::string cause_of(const std::exception& error);

// For catch blocks: throws the exception in flight again, as a BackendError where it is LibTorch's or oneDNN's. Ours,
// those of the file system and std::bad_alloc pass as they are.
[[noreturn]] void rethrow_translated(const std::string& attempt);

// The same for whoever calls code of others too (callbacks): translates c10::Error alone.
[[noreturn]] void throw_translated(const std::string& attempt, const std::exception& error);

// For catch blocks: ours with "name: " in front, so that an operator's error tells the module; LibTorch's translated.
// Anything else passes as it is. An empty name: of a module that nobody has named.
[[noreturn]] void rethrow_named(const std::string& name);

// Runs `work`; `attempt` gives the words for what was attempted, and is called only when it failed.
template <class Attempt, class Work>
auto translated(const Attempt& attempt, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    rethrow_translated(attempt());
  }
}

}  // namespace halfbyte

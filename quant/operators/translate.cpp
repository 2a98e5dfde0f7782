#include "quant/operators/translate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <new>
#include <string_view>
#include <system_error>

#include <c10/util/Exception.h>

#include "quant/kernels/cpu_products.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte {
namespace {

// One kind of refusal: told by words that LibTorch 2.6 to 2.13 and oneDNN 2.6 to 3.12 use for it.
struct Refusal {
  std::array<std::string_view, 8> words;  // in lower case; any of them; empty ones are none
  ErrorCode code;
  const char* cause;
  Text cure;
  bool is_about_cpu = false;  // what this CPU lacks is worth telling
};

// The first that matches; the last is for everything else.
const auto kRefusals = std::to_array<Refusal>({
    {.words = {"out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory"},
     .code = ErrorCode::kNoResources,
     .cause = "there is not enough memory for it",
     .cure = "take fewer tokens or rows at once, a smaller model, or another device"},
    {.words = {"could not create a primitive", "could not create a descriptor", "could not execute a primitive",
               "mkldnn", "onednn", "needs the cpu support"},
     .code = ErrorCode::kUnsupported,
     .cause = "oneDNN has no kernel for these dtypes, together or on this CPU",
     .cure = "load with a dtype policy that it has: " + Option::kDtype + " float32, in C++ DtypePolicy::float32()",
     .is_about_cpu = true},
    {.words = {"not linked with support", "without aten_", "not compiled with", "nvidia driver", "no cuda gpus",
               "no xpu device"},
     .code = ErrorCode::kUnsupported,
     .cause = "this LibTorch, or this machine, has no such device",
     .cure = "run `" + Operation::kDoctor + "` to see which there are, or take the CPU"},
    {.words = {"could not run '", "not implemented for", "not currently implemented", "no kernel", "not supported on"},
     .code = ErrorCode::kUnsupported,
     .cause = "LibTorch has no kernel for it on this device in this dtype",
     .cure = "run it on the CPU, or with " + Option::kDtype + " float32 (DtypePolicy::float32())"},
    {.words = {"meta tensor", "meta backend"},
     .code = ErrorCode::kContract,
     .cause = "a tensor on Meta has no values",
     .cure = "load the checkpoint into it, or build the module on a device"},
    {.words = {"on the same device", "two devices", "same device", "different device", "is on cpu", "expected device"},
     .code = ErrorCode::kContract,
     .cause = "its tensors are on different devices",
     .cure = "move the whole model and its inputs to one device with .to()"},
    {.words = {"inference tensor"},
     .code = ErrorCode::kContract,
     .cause = "a tensor that was made under InferenceMode cannot take part in training",
     .cure = "make it outside InferenceMode, or clone() it there"},
    {.words = {"same dtype", "scalar type", "dtypes", "but found half", "expected dtype", "same type"},
     .code = ErrorCode::kContract,
     .cause = "tensors of different dtypes met in one operation",
     .cure = "let a dtype policy cast (" + Option::kDtype + ", DtypePolicy) instead of casting modules by hand"},
    {.words = {"shape", "size", "dimension", "numel"},
     .code = ErrorCode::kInvalidArgument,
     .cause = "its tensors' shapes do not fit together",
     .cure = "compare them with what the module expects"},
    {.words = {},
     .code = ErrorCode::kContract,
     .cause = "LibTorch or oneDNN refused it",
     .cure = Option::kVerbose + " shows their own words, in C++ BackendError::detail()"},
});

const Refusal& refusal_of(const std::string& text) {
  std::string lower = text;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Refusal& row : kRefusals) {
    const auto is_in = [&](std::string_view word) { return !word.empty() && lower.find(word) != std::string::npos; };
    if (std::ranges::any_of(row.words, is_in)) return row;
  }
  return kRefusals.back();
}

std::string lacking() {
  std::string text;
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    const std::string names = quant::lacking_products(dtype);
    if (!names.empty())
      text += (text.empty() ? " (this CPU lacks " : ", and ") + names + " for " + std::string(name(dtype));
  }
  return text.empty() ? text : text + ")";
}

[[noreturn]] void refuse(const std::string& attempt, const std::string& detail) {
  const Refusal& refusal = refusal_of(detail);
  throw BackendError(
      refusal.code,
      attempt + ": " + refusal.cause + (refusal.is_about_cpu ? lacking() : std::string()) + "; " + refusal.cure,
      detail);
}

std::string text_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error ? torch_error->what_without_backtrace() : error.what();
}

// For catch blocks of an Error.
[[noreturn]] void prefix_error(const std::string& name) {
  try {
    throw;
  } catch (const BackendError& error) {
    throw BackendError(error.code(), name + ": " + error.text(), error.detail());
  } catch (const Error& error) {
    throw Error(error.code(), name + ": " + error.text());
  }
}

std::string shape_text(at::IntArrayRef sizes) {
  std::string text = "[";
  for (const std::int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  const auto dtype = from_torch(tensor.scalar_type());
  const std::string type = dtype ? std::string(name(*dtype)) : c10::toString(tensor.scalar_type());
  return type + " " + shape_text(tensor.sizes()) + " on " + tensor.device().str();
}

std::string describe(std::initializer_list<NamedTensor> tensors) {
  std::string text;
  for (const NamedTensor& item : tensors) {
    if (item.tensor.defined())
      text += (text.empty() ? "" : ", ") + std::string(item.name) + " " + describe(item.tensor);
  }
  return text;
}

std::string cause_of(const std::exception& error) {
  const Refusal& refusal = refusal_of(text_of(error));
  return refusal.cause + (refusal.is_about_cpu ? lacking() : std::string());
}

void throw_translated(const std::string& attempt, const std::exception& error) { refuse(attempt, text_of(error)); }

void rethrow_translated(const std::string& attempt) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::system_error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(attempt, text_of(error));
  }
}

void rethrow_named(const std::string& name) {
  try {
    throw;
  } catch (const Error&) {
    if (name.empty()) throw;
    prefix_error(name);
  } catch (const c10::Error& error) {
    refuse(name.empty() ? "a linear layer" : name, text_of(error));
  }
}

}  // namespace halfbyte

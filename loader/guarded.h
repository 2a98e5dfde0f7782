// What surrounds each of the loader's public calls: tensors are made as if the caller had no guard in force, and
// LibTorch's exceptions become ours.
#pragma once

#include <new>
#include <string>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/error.h>

#include "quant/operators/translate.h"

namespace halfbyte {

template <class Work>
auto guarded(const std::string& where, const Work& work) {
  // Tensors made under InferenceMode could not be written to, cast or trained outside it.
  const c10::InferenceMode no_inference_mode(false);
  const at::NoGradGuard no_grad;
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kNoResources, where + ": not enough memory to load this model");
  } catch (...) {
    rethrow_translated("loading " + where);
  }
}

}  // namespace halfbyte

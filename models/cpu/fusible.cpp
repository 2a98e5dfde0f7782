#include "models/cpu/fusible.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include "models/modules/overflow.h"
#include "models/modules/tap.h"

namespace halfbyte::models::cpu {
namespace {

bool are_known(const at::Tensor& tokens, std::int64_t vocab_size) {
  const std::int64_t* ids = tokens.const_data_ptr<std::int64_t>();
  return std::all_of(ids, ids + tokens.numel(), [&](std::int64_t id) { return id >= 0 && id < vocab_size; });
}

// What does not depend on the weights' tensors.
bool is_wanted(const Compute& compute) {
  return compute.operand && compute.stream == at::kFloat && !at::GradMode::is_enabled() && !overflow_probe &&
         !Tap::is_there() && !at::autocast::is_autocast_enabled(at::kCPU);
}

bool takes(const at::Tensor& tokens, const Decoder& decoder) {
  return tokens.is_cpu() && tokens.dim() == 1 && tokens.scalar_type() == at::kLong && tokens.is_contiguous() &&
         tokens.numel() > 0 && (!decoder.has_embedding() || are_known(tokens, decoder.embedding().vocab_size()));
}

bool takes_input(const at::Tensor& input) {
  return !input.defined() || (input.is_cpu() && input.scalar_type() == at::kFloat && input.is_contiguous());
}

}  // namespace

bool is_fusible(const Decoder& decoder, const at::Tensor& tokens, const at::Tensor& input) {
  return is_wanted(decoder.compute()) && takes(tokens, decoder) && takes_input(input);
}

}  // namespace halfbyte::models::cpu

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

bool takes(const at::Tensor& tokens, const Embedding& embedding) {
  return tokens.is_cpu() && tokens.dim() == 1 && tokens.scalar_type() == at::kLong && tokens.is_contiguous() &&
         tokens.numel() > 0 && are_known(tokens, embedding.vocab_size());
}

}  // namespace

bool is_fusible(const Decoder& decoder, const at::Tensor& tokens) {
  return is_wanted(decoder.compute()) && takes(tokens, decoder.embedding());
}

}  // namespace halfbyte::models::cpu

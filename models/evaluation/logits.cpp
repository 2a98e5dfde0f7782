#include "models/evaluation/logits.h"

#include <algorithm>

#include <halfbyte/causal_lm.h>

#include "models/sessions/pass_watch.h"
#include "models/sessions/session.h"
#include "quant/operators/translate.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kTokensAtOnce = 2048;                    // of a pass: products are as fast as they become
constexpr std::int64_t kLogitsAtOnce = std::int64_t{16} << 20;  // of one model

}  // namespace

at::Tensor WindowBatch::targets() const { return tokens.narrow(1, tokens.size(1) - scored, scored).flatten(); }

void ModelLogits::begin(const WindowBatch& batch) {
  const std::int64_t context = batch.tokens.size(1);
  hidden_.reset();  // the last batch's goes first
  std::vector<Session> sessions = model_.make_sessions(batch.tokens.size(0));
  const at::Tensor hidden = model_.hidden(batch.tokens.to(model_.device()), sessions);
  hidden_ = hidden.narrow(1, context - 1 - batch.scored, batch.scored).flatten(0, 1).contiguous();
}

at::Tensor ModelLogits::rows(std::int64_t begin, std::int64_t count) {
  PassWatch::check();
  return translated([&] { return "logits of " + describe(hidden_) + " under " + model_.policy().name(); },
                    [&] { return model_.head(hidden_.narrow(0, begin, count)).cpu(); });
}

std::int64_t windows_at_once(std::int64_t context) { return std::max<std::int64_t>(1, kTokensAtOnce / context); }

std::int64_t rows_at_once(std::int64_t vocab_size) {
  return std::clamp<std::int64_t>(kLogitsAtOnce / std::max<std::int64_t>(vocab_size, 1), 16, 1024);
}

}  // namespace halfbyte::models

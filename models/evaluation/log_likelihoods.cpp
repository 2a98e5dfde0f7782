#include "models/evaluation/log_likelihoods.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>

#include "models/sessions/pass_watch.h"
#include "models/sessions/session.h"

namespace halfbyte::models {

std::vector<double> log_likelihoods(const CausalLM& model, const std::vector<Continuation>& continuations) {
  std::size_t longest = 0;
  for (const Continuation& one : continuations) longest = std::max(longest, one.tokens.size());
  const auto length = static_cast<std::int64_t>(longest), rows = static_cast<std::int64_t>(continuations.size());
  at::Tensor tokens = at::zeros({rows, length}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    const TokenIds& ids = continuations[static_cast<std::size_t>(row)].tokens;
    tokens[row].narrow(0, 0, static_cast<std::int64_t>(ids.size())).copy_(at::tensor(ids, at::kLong));
  }
  std::vector<Session> sessions = model.make_sessions(rows);
  const at::Tensor hidden = model.hidden(tokens.to(model.device()), sessions);
  std::vector<double> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    PassWatch::check();
    const Continuation& one = continuations[static_cast<std::size_t>(row)];
    const std::int64_t begin = static_cast<std::int64_t>(one.tokens.size()) - one.count;
    const at::Tensor logits = model.head(hidden[row].narrow(0, begin - 1, one.count)).cpu();
    const at::Tensor targets = tokens[row].narrow(0, begin, one.count).unsqueeze(1);
    out.push_back(logits.log_softmax(-1, at::kDouble).gather(1, targets).sum().item<double>());
  }
  return out;
}

}  // namespace halfbyte::models

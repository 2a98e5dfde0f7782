// Sequences that a model makes itself: what it was trained on, as far as it remembers.
#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/budget.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/printable.h"
#include "loader/thread_count.h"
#include "models/architectures/model_config.h"
#include "models/sessions/pass_watch.h"
#include "models/sessions/session.h"
#include "quant/operators/translate.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kSeed = 0;

at::Tensor draw(const models::CausalLM& model, std::int64_t first_token, std::int64_t sequences, std::int64_t context) {
  const c10::InferenceMode guard;
  at::Generator random = at::detail::createCPUGenerator(kSeed);
  std::vector<models::Session> rows = model.make_sessions(sequences);
  at::Tensor out = at::full({sequences, context}, first_token, at::kLong);
  for (std::int64_t i = 1; i < context; ++i) {
    models::PassWatch::check();
    const at::Tensor logits = model.head(model.hidden(out.narrow(1, i - 1, 1), rows)).select(1, 0);
    out.narrow(1, i, 1).copy_(logits.softmax(-1).multinomial(1, /*replacement=*/true, random));
  }
  return out;
}

}  // namespace

CalibrationTokens own_tokens(const std::filesystem::path& checkpoint, const OwnTokensOptions& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  const Model model = load_low_bit(checkpoint);
  const models::PassWatch watch(options.stop);
  const std::int64_t context = std::min(options.context, model.config().max_position_embeddings);
  const at::Tensor tokens = translated(
      [&] { return "drawing tokens of " + files::printable_path(checkpoint); },
      [&] { return draw(model.module(), model.config().bos_token_id.value_or(0), options.sequences, context); });
  CalibrationTokens out;
  for (std::int64_t i = 0; i < options.sequences; ++i) {
    const auto* row = tokens.const_data_ptr<std::int64_t>() + i * context;
    out.sequences.emplace_back(row, row + context);
  }
  return out;
}

}  // namespace halfbyte::convert

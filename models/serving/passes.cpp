#include "models/serving/passes.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "models/generation/passes.h"
#include "models/modules/pass_watch.h"

namespace halfbyte::serving {
namespace {

// Rows of logits at once: as many as are alike however many there are.
at::Tensor logits_of(const models::CausalLM& model, const at::Tensor& hidden) {
  const quant::RowsAlike alike;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& rows : hidden.split(quant::kDirectRows)) parts.push_back(model.head(rows));
  return at::cat(parts).cpu().contiguous();
}

}  // namespace

PassResult run_pass(const models::CausalLM& model, std::span<const Piece> pieces, std::stop_token stop) {
  const models::PassWatch watch(std::move(stop), {});
  std::vector<models::StepRow> rows;
  TokenIds ids;
  std::vector<std::int64_t> last;  // rows of those that are ready
  PassResult out;
  for (const auto& [sequence, tokens] : pieces) {
    const auto begin = sequence->tokens.begin() + sequence->read();
    ids.insert(ids.end(), begin, begin + tokens);
    rows.push_back({&*sequence->session, tokens});
    if (sequence->read() + tokens < sequence->length()) continue;
    out.ready.push_back(sequence);
    last.push_back(static_cast<std::int64_t>(ids.size()) - 1);
  }
  const bool are_many = pieces.front().sequence->reads_many();
  const quant::RowsAlike alike(are_many ? quant::RowsKind::kMany : quant::RowsKind::kFew);
  out.hidden = model.step(at::tensor(ids).to(model.device()), rows);
  if (!last.empty()) out.logits = logits_of(model, out.hidden.index_select(0, at::tensor(last).to(model.device())));
  return out;
}

}  // namespace halfbyte::serving

#include "models/serving/passes.h"

#include <ATen/ATen.h>

#include "models/generation/passes.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::serving {

at::Tensor read_pieces(const models::CausalLM& model, std::span<const Piece> pieces, std::stop_token stop) {
  const models::PassWatch watch(std::move(stop), {});
  std::vector<models::StepRow> rows;
  TokenIds ids;
  for (const auto& [sequence, tokens] : pieces) {
    const auto begin = sequence->tokens.begin() + sequence->read();
    ids.insert(ids.end(), begin, begin + tokens);
    rows.push_back({&*sequence->session, tokens});
  }
  const bool are_many = pieces.front().sequence->reads_many();
  const quant::RowsAlike alike(are_many ? quant::RowsKind::kMany : quant::RowsKind::kFew);
  return model.step(at::tensor(ids).to(model.device()), rows);
}

// As many rows at once as are alike however many there are.
at::Tensor logits_of(const models::CausalLM& model, const at::Tensor& hidden) {
  const quant::RowsAlike alike;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& rows : hidden.split(quant::kDirectRows)) parts.push_back(model.head(rows));
  return at::cat(parts).cpu().contiguous();
}

}  // namespace halfbyte::serving

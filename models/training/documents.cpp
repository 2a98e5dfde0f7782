#include "models/training/documents.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include <halfbyte/error.h>

#include "models/modules/decoder.h"

namespace halfbyte::training {
namespace {

using models::CausalLM;
using models::KeyRange;
using models::Pass;
using models::Session;

std::int64_t longest(std::span<const Sequence* const> sequences) {
  std::size_t out = 0;
  for (const Sequence* one : sequences) out = std::max(out, one->tokens.size());
  return static_cast<std::int64_t>(out);
}

void check(const Sequence& sequence, const models::ModelConfig& config, bool may_pack) {
  const auto sum = std::accumulate(sequence.lengths.begin(), sequence.lengths.end(), std::int64_t{0});
  const auto tokens = static_cast<std::int64_t>(sequence.tokens.size());
  const bool is_good = tokens > 0 && sequence.labels.size() == sequence.tokens.size() && sum == tokens &&
                       std::ranges::all_of(sequence.lengths, [](std::int64_t length) { return length > 0; });
  if (!is_good)
    throw Error(ErrorCode::kInvalidArgument,
                "a sequence has as many labels as tokens, and its documents' lengths are their sum");
  const auto is_id = [&](std::int64_t id) { return id >= 0 && id < config.vocab_size; };
  const auto is_label = [&](std::int64_t label) { return label == kUnscored || is_id(label); };
  if (!std::ranges::all_of(sequence.tokens, is_id) || !std::ranges::all_of(sequence.labels, is_label))
    throw Error(ErrorCode::kInvalidArgument,
                "a sequence has a token or a label that is none of this model's, which are 0 to " +
                    std::to_string(config.vocab_size - 1));
  if (sequence.lengths.size() > 1 && !may_pack)
    throw Error(ErrorCode::kInvalidArgument,
                "layers of this model carry a state from token to token: its documents cannot share a sequence");
}

// The row's documents, and what is behind them as one more.
std::vector<std::int64_t> parts_of(const Sequence& sequence, std::int64_t tokens) {
  std::vector<std::int64_t> out = sequence.lengths;
  if (const auto used = static_cast<std::int64_t>(sequence.tokens.size()); used < tokens) out.push_back(tokens - used);
  return out;
}

// Of each token of a row: which document it is of, and the how manieth there. Shapes: (tokens), int64.
struct Places {
  at::Tensor document, position;
};
Places places_of(const std::vector<std::int64_t>& parts) {
  std::vector<at::Tensor> documents, positions;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    documents.push_back(at::full({parts[i]}, static_cast<std::int64_t>(i), at::kLong));
    positions.push_back(at::arange(parts[i], at::kLong));
  }
  return {at::cat(documents), at::cat(positions)};
}

// Shape: (1, tokens, tokens), bool.
at::Tensor seen_by(const Places& places, const models::Reach& reach) {
  const at::Tensor &document = places.document, &position = places.position;
  const at::Tensor key = position.unsqueeze(0), query = position.unsqueeze(1);
  at::Tensor out = (document.unsqueeze(0) == document.unsqueeze(1)).logical_and(key <= query);
  if (reach.window > 0) {
    const at::Tensor first =
        reach.is_chunked ? query.floor_divide(reach.window) * reach.window : query - reach.window + 1;
    out = out.logical_and(key >= first);
  }
  return out.unsqueeze(0);
}

models::RotaryTable turned(const Session& session, std::size_t rope, const std::vector<std::int64_t>& parts,
                           at::Device device) {
  std::vector<at::Tensor> cosines, sines;
  for (const std::int64_t length : parts) {
    models::RotaryTable one = models::Rotary::of(session, rope, 0, length, device);
    cosines.push_back(std::move(one.cosine));
    sines.push_back(std::move(one.sine));
  }
  return {at::cat(cosines), at::cat(sines)};
}

}  // namespace

Rows rows_of(std::span<const Sequence* const> sequences) {
  const std::int64_t tokens = longest(sequences), rows = static_cast<std::int64_t>(sequences.size());
  Rows out{at::zeros({rows, tokens}, at::kLong), at::full({rows, tokens}, kUnscored, at::kLong)};
  for (std::int64_t row = 0; row < rows; ++row) {
    const Sequence& one = *sequences[static_cast<std::size_t>(row)];
    std::ranges::copy(one.tokens, out.tokens[row].data_ptr<std::int64_t>());
    std::ranges::copy(one.labels, out.labels[row].data_ptr<std::int64_t>());
  }
  return out;
}

bool can_pack(const models::ModelConfig& config) {
  return std::ranges::all_of(config.layers, [](const models::LayerConfig& layer) {
    return layer.mixer == models::MixerKind::kAttention || layer.mixer == models::MixerKind::kLatent;
  });
}

DocumentPass::DocumentPass(const CausalLM& model, std::span<const Sequence* const> sequences)
    : model_(model), sessions_(model.make_sessions(static_cast<std::int64_t>(sequences.size()))) {
  const bool may_pack = can_pack(model.config());
  if (sequences.empty()) throw Error(ErrorCode::kInvalidArgument, "there is no sequence to learn from");
  for (const Sequence* one : sequences) check(*one, model.config(), may_pack);
  std::vector<Session*> sessions;
  for (Session& one : sessions_) sessions.push_back(&one);
  pass_ = model.decoder().make_pass(std::move(sessions), longest(sequences), model.device());
  if (must_separate(sequences)) separate(sequences);
}

// Frequencies that depend on how long a document is are its own, whatever it is padded to.
bool DocumentPass::must_separate(std::span<const Sequence* const> sequences) const {
  const bool depend = std::ranges::any_of(model_.config().ropes,
                                          [&](const models::RopeConfig& rope) { return rope.fixed_length() > 0; });
  return std::ranges::any_of(sequences, [&](const Sequence* one) {
    return one->lengths.size() > 1 || (depend && static_cast<std::int64_t>(one->tokens.size()) < pass_.tokens);
  });
}

void DocumentPass::separate(std::span<const Sequence* const> sequences) {
  std::vector<Places> places;
  std::vector<std::vector<std::int64_t>> parts;
  for (const Sequence* one : sequences) {
    parts.push_back(parts_of(*one, pass_.tokens));
    places.push_back(places_of(parts.back()));
  }
  const at::Device device = model_.device();
  for (KeyRange& range : pass_.ranges) {
    std::vector<at::Tensor> masks;
    for (const Places& one : places) masks.push_back(seen_by(one, range.reach));
    range.mask = at::stack(masks).to(device);
    range.is_causal = false;
  }
  for (std::size_t rope = 0; rope < pass_.rotaries.size(); ++rope) {
    std::vector<at::Tensor> cosines, sines;
    for (std::size_t row = 0; row < parts.size(); ++row) {
      models::RotaryTable one = turned(sessions_[row], rope, parts[row], device);
      cosines.push_back(std::move(one.cosine));
      sines.push_back(std::move(one.sine));
    }
    pass_.rotaries[rope] = {at::stack(cosines).unsqueeze(2), at::stack(sines).unsqueeze(2)};
  }
  std::vector<at::Tensor> positions;
  for (const Places& one : places) positions.push_back(one.position);
  pass_.positions = at::stack(positions);
}

Pass DocumentPass::begin(std::vector<Session>& sessions) const {
  sessions = model_.make_sessions(pass_.rows);
  Pass out = pass_;
  for (std::size_t row = 0; row < sessions.size(); ++row) out.sessions[row] = &sessions[row];
  return out;
}

}  // namespace halfbyte::training

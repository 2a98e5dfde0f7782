// Attention to keys and values that are all made from one small latent vector a token, which alone is kept, beside one
// turned key that all heads share. Source: "DeepSeek-V2" (2405.04434).
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "models/modules/key_value_cache.h"
#include "models/modules/mixer.h"
#include "models/modules/model_weights.h"
#include "models/modules/norm.h"

namespace halfbyte::models {

class LatentAttention : public Mixer {
 public:
  LatentAttention(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer);
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const override;
  std::unique_ptr<LayerState> make_state(at::Device device) const override;
  // The products that heads have rows or columns of their own in: to queries, from latents, and of the results.
  std::array<const Linear*, 3> of_heads() const noexcept {
    return {query_up_ ? query_up_.get() : queries_[0].get(), up_.get(), output_.get()};
  }

 private:
  // What is attended to, of the keys in range. Shapes: latents (rows, keys, rank), turned (rows, keys, turned_dim).
  struct Seen {
    at::Tensor latents, turned;
  };
  // A query's part that meets the latent's keys, and the one that meets the turned key. Shapes: (rows, tokens, heads,
  // plain_dim or turned_dim).
  struct Query {
    at::Tensor plain, turned;
  };
  Query project(const at::Tensor& input, const Pass& pass) const;
  Seen keep(const at::Tensor& input, const Pass& pass) const;
  // Results of all heads. Shape: (rows, tokens, heads, value_dim).
  // Keys and values of every token seen are made from its latent: for many tokens.
  at::Tensor expanded(const Query& query, const Seen& seen, const KeyRange& range) const;
  // The query goes to the latents instead, and what is read comes back from there: for a few tokens. The same but for
  // rounding.
  at::Tensor absorbed(const Query& query, const Seen& seen, const KeyRange& range) const;
  // Rows of a head's keys, then of its values. Shape: (heads, plain_dim + value_dim, rank).
  at::Tensor up_weight(at::ScalarType type) const;

  Compute compute_;
  std::int64_t layer_;
  std::int64_t heads_;
  LatentConfig config_;
  double scale_;
  std::size_t rope_;
  bool is_interleaved_;
  std::vector<std::shared_ptr<Linear>> queries_;  // from the input, or down to the query's rank
  std::shared_ptr<Norm> query_norm_;              // null: queries come from the input
  std::shared_ptr<Linear> query_up_;              // null: the same
  std::vector<std::shared_ptr<Linear>> down_;     // one: to the latent and the turned key
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<Linear> up_, output_;
  mutable std::mutex mutex_;
  mutable at::Tensor dense_up_;  // what up_weight() gave last
};

}  // namespace halfbyte::models

// What a model gives in one process and in ranks, and that these are the same.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "models/modules/latent_attention.h"
#include "models/modules/mlp.h"
#include "tests/catch.h"
#include "tests/models/parallel/ranks.h"

namespace halfbyte::tests {

// Of products in a model's modules, or a rank's.
struct Values {
  std::int64_t experts = 0, shared = 0, latent = 0;
  std::int64_t most_experts = 0;  // of a layer: how many, not their values

  bool operator==(const Values&) const = default;
};

struct Given {
  at::Tensor logits;  // (tokens, vocab_size)
  TokenIds greedy;
  std::string note;  // of the division; empty: none
  Values values;
};

inline std::int64_t values_of(const models::Linear& linear) { return linear.in_features() * linear.out_features(); }
inline std::int64_t values_of(const models::Mlp& mlp) {
  std::int64_t out = values_of(mlp.down());
  for (const auto& linear : mlp.inputs()) out += values_of(*linear);
  return out;
}

inline Values values_of(const models::CausalLM& module) {
  Values out;
  for (const auto& each : module.modules()) {
    if (const auto* all = dynamic_cast<const models::MixtureOfExperts*>(each.get())) {
      for (const auto& expert : all->experts()) out.experts += values_of(*expert);
      if (all->shared()) out.shared += values_of(*all->shared());
      out.most_experts = std::max(out.most_experts, static_cast<std::int64_t>(all->experts().size()));
    }
    if (const auto* latent = dynamic_cast<const models::LatentAttention*>(each.get())) {
      for (const models::Linear* linear : latent->of_heads()) out.latent += values_of(*linear);
    }
  }
  return out;
}

inline TokenIds prompt_of(const Model& model, std::int64_t count) {
  TokenIds out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((i * 7919 + 31) % model.config().vocab_size);
  return out;
}

inline Given given_by(const Model& model) {
  const c10::InferenceMode inference;
  const TokenIds prompt = prompt_of(model, 13);
  const at::Tensor ids = at::tensor(at::IntArrayRef(prompt)).unsqueeze(0);
  Given out{model.module().forward(ids)[0], {}, {}, values_of(model.module())};
  GenerateOptions options;
  options.max_gen_len = 24;
  options.ignore_eos = true;
  out.greedy = model.generate({prompt}, options).at(0).tokens;
  for (const std::string& note : model.report().notes) {
    if (note.starts_with("rank ")) out.note = note;
  }
  return out;
}

// What each of `size` ranks gives.
inline std::vector<Given> given_by_ranks(const std::filesystem::path& path, int size, const LoadOptions& options) {
  std::vector<Given> out(static_cast<std::size_t>(size));
  tests::Ranks(size).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions own = options;
    own.group = group;
    out[static_cast<std::size_t>(group->rank())] = given_by(load_low_bit(path, own));
  });
  return out;
}

inline std::vector<Given> check_ranks(const std::filesystem::path& path, int size, const LoadOptions& options,
                                      double bound) {
  INFO(path << " in " << size << " ranks under " << options.dtype.name());
  LoadOptions alone = options;
  alone.pipeline = 1;
  const Given wanted = given_by(load_low_bit(path, alone));
  const std::vector<Given> found = given_by_ranks(path, size, options);
  for (const Given& each : found) {
    CHECK((each.logits - wanted.logits).abs().max().item<double>() < bound);
    CHECK(each.logits.equal(found[0].logits));
    CHECK(each.greedy == found[0].greedy);
    INFO(each.note);
    CHECK_FALSE(each.note.empty());
  }
  CHECK(found[0].greedy == wanted.greedy);
  return found;
}

}  // namespace halfbyte::tests

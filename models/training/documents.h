// The pass of a training step: rows of documents that do not see each other.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/sequence.h>

#include "models/modules/pass.h"
#include "models/sessions/session.h"

namespace halfbyte::training {

// Sequences as the rows of one tensor, the shorter ones with unscored tokens behind. Shapes: (rows, tokens), int64.
struct Rows {
  at::Tensor tokens, labels;
};
Rows rows_of(std::span<const Sequence* const> sequences);

// Whether documents of this model's may share a row: a state that goes on from token to token cannot begin anew in it.
bool can_pack(const models::ModelConfig& config);

// What all layers are given beside their input. Positions and what is seen begin anew with each document.
class DocumentPass {
 public:
  // Errors: kInvalidArgument for lengths that are not the sequence's, or several documents where they cannot be.
  DocumentPass(const models::CausalLM& model, std::span<const Sequence* const> sequences);

  // For one run of one layer, whose keys go with `sessions`.
  models::Pass begin(std::vector<models::Session>& sessions) const;

 private:
  bool must_separate(std::span<const Sequence* const> sequences) const;
  void separate(std::span<const Sequence* const> sequences);

  const models::CausalLM& model_;
  std::vector<models::Session> sessions_;
  models::Pass pass_;
};

}  // namespace halfbyte::training

#include <halfbyte/causal_lm.h>

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/error.h>

#include "models/modules/decoder.h"
#include "models/modules/logits.h"
#include "models/modules/model_weights.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"
#include "models/modules/product_cost.h"
#include "models/parallel/leader.h"
#include "models/parallel/pipeline.h"
#include "models/parallel/summed.h"
#include "models/sessions/pass_watch.h"
#include "quant/operators/translate.h"
#include "quant/thread_pool.h"

namespace halfbyte::models {

namespace {

void check_device(const std::string& name, const torch::nn::Module& module, at::Device wanted,
                  std::vector<Violation>& violations) {
  const auto check = [&](const std::string& tensor, at::Device found) {
    if (found == wanted) return;
    violations.push_back({name, tensor + " is on " + found.str() + ", the head is on " + wanted.str() +
                                    "; move the whole model with .to(), or load it with a device"});
  };
  for (const auto& item : module.named_parameters(/*recurse=*/false)) check(item.key(), item.value().device());
  for (const auto& item : module.named_buffers(/*recurse=*/false)) check(item.key(), item.value().device());
  if (const auto* packed = dynamic_cast<const LowBitLinear*>(&module)) check("weight", packed->device());
  const auto* embedding = dynamic_cast<const Embedding*>(&module);
  if (embedding && embedding->packed()) check("weight", embedding->packed()->device());
}

[[noreturn]] void fail_query_or_key(const DtypePolicy& policy) {
  throw Error(ErrorCode::kContract, "a query or key does not fit the dtype that attention multiplies in (policy " +
                                        policy.name() + "); load with " + Option::kDtype + " amp:bfloat16");
}

// A session twice would be written to twice.
void check_rows(const at::Tensor& tokens, std::span<const StepRow> rows) {
  std::int64_t count = 0;
  bool is_good = !rows.empty() && tokens.dim() == 1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    count += rows[i].tokens;
    is_good &= rows[i].tokens > 0 && std::ranges::count(rows.first(i), rows[i].session, &StepRow::session) == 0;
  }
  if (is_good && count == tokens.size(0)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a step takes one token at least for each of its sessions, which are different "
              "ones; got " +
                  std::to_string(rows.size()) + " rows of " + std::to_string(count) + " tokens in all, and ids of " +
                  describe(tokens));
}

// In every stage, of which the first alone would look them up.
void check_ids(const at::Tensor& tokens, const ModelConfig& config) {
  if (tokens.numel() == 0 ||
      (tokens.min().item<std::int64_t>() >= 0 && tokens.max().item<std::int64_t>() < config.vocab_size))
    return;
  throw Error(ErrorCode::kInvalidArgument,
              "token ids of this model are from 0 to " + std::to_string(config.vocab_size - 1));
}

// Whether no query or key of theirs was otherwise since the last call.
bool were_finite(std::span<const StepRow> rows) {
  bool out = true;
  for (const StepRow& row : rows) out &= row.session->was_finite();
  return out;
}

void commit(std::span<const StepRow> rows) {
  for (const StepRow& row : rows) row.session->commit(row.tokens);
}

}  // namespace

CausalLM::CausalLM(const ModelConfig& config, const ModelWeights& weights, const DtypePolicy& policy,
                   quant::Arithmetic arithmetic, KeyValues key_values, std::shared_ptr<Group> group, int stages,
                   bool rounds_sums)
    : config_(std::make_unique<const ModelConfig>(config)), policy_(policy) {
  Compute compute(policy, arithmetic, key_values);
  compute.group = compute.layer_group = std::move(group);
  if (stages > 1) {
    const Stage stage = stage_of(compute.group->rank(), compute.group->size(), stages);
    compute.layer_group = stage.places > 1 ? compute.group->part(stage.ranks()) : nullptr;
    pipeline_ = std::make_unique<const Pipeline>(compute.group, stage, compute.stream, config.hidden_size);
  }
  if (rounds_sums && compute.layer_group) compute.layer_group = rounding_group(compute.layer_group);
  model_ = std::make_unique<Decoder>(*this, weights, config, compute);
  lm_head_ = make_linear(weights.modules.linear(&Naming::head), compute);
  register_at(*this, config.naming->head, lm_head_);
  for (const auto& item : named_modules({}, /*include_self=*/false)) {  // a constructor has no shared_ptr to itself
    if (auto* linear = dynamic_cast<Linear*>(item.value().get())) linear->set_path(item.key());
  }
  eval();
}

CausalLM::~CausalLM() = default;

at::Device CausalLM::device() const { return lm_head_->device(); }

Session CausalLM::make_session() const {
  Session out =
      translated([] { return std::string("making a session"); }, [&] { return model_->make_session(device()); });
  if (leader_) out.follow_in(leader_->log());
  return out;
}

Group* CausalLM::group_in_step() const noexcept { return leader_ ? nullptr : model_->compute().group.get(); }

std::vector<Session> CausalLM::make_sessions(std::int64_t count) const {
  std::vector<Session> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(make_session());
  return out;
}

at::Tensor CausalLM::hidden(const at::Tensor& tokens, std::span<Session> sessions) const {
  std::vector<StepRow> rows;
  for (Session& session : sessions) rows.push_back({&session, tokens.size(1)});
  return step(tokens.reshape(-1), rows).view({tokens.size(0), tokens.size(1), -1});
}

at::Tensor CausalLM::hidden(const at::Tensor& tokens, Session& session) const {
  return hidden(tokens, std::span(&session, 1));
}

void CausalLM::check_step(const at::Tensor& tokens, std::span<const StepRow> rows) const {
  check_rows(tokens, rows);
  if (tokens.device() != device()) {
    throw Error(ErrorCode::kContract, "the token ids are on " + tokens.device().str() + " but the model is on " +
                                          device().str() + "; move one of them with .to()");
  }
  if (pipeline_ || leader_) check_ids(tokens, *config_);
}

at::Tensor CausalLM::step(const at::Tensor& tokens, std::span<const StepRow> rows) const {
  check_step(tokens, rows);
  if (leader_) return leader_->step(tokens, rows);
  const quant::OwnThreads own_threads;
  const auto work = WorkScope::pass(tokens.size(0));
  return pipeline_ ? pass_in_parts(tokens, rows, nullptr) : pass(tokens, rows, nullptr);
}

// A stage goes on to the next part while those after it work on what it gave: nothing comes back before head() asks.
at::Tensor CausalLM::pass_in_parts(const at::Tensor& tokens, std::span<const StepRow> rows, Verdict* verdict) const {
  const ExpectedRows expected(rows);
  const std::vector<MicroBatch> parts = micro_batches(rows);
  std::vector<at::Tensor> out;
  pipeline_->in_step([&] {
    for (const MicroBatch& part : parts) {
      const PassWatch::Part watched(static_cast<std::int64_t>(out.size()), static_cast<std::int64_t>(parts.size()));
      out.push_back(pass(tokens.narrow(0, part.first, part.tokens), part.rows, verdict));
    }
  });
  return out.size() == 1 ? out[0] : at::cat(out);
}

struct CausalLM::Verdict {
  bool is_finite = true;
  bool commits;  // each pass; else who asked for it does
};

at::Tensor CausalLM::pass(const at::Tensor& tokens, std::span<const StepRow> rows, Verdict* verdict) const {
  const at::Tensor input = pipeline_ ? pipeline_->received(tokens.size(0)) : at::Tensor();
  const auto run = [&] {
    return translated(
        [&] { return "the model's forward pass of tokens " + describe(tokens) + " under " + policy_.name(); },
        [&] { return model_->forward(tokens, rows, input); });
  };
  were_finite(rows);  // what a pass noted that was broken off
  at::Tensor out = run();
  const bool are_keys_finite = were_finite(rows);
  if (verdict) {
    verdict->is_finite &= are_keys_finite && is_finite(out);
  } else {
    // Ranks have keys of their own, and would not all run the pass again.
    if (!are_keys_finite && model_->compute().group) fail_query_or_key(policy_);
    if (!are_keys_finite || !is_finite(out)) {
      explain_not_finite(*this, policy_, run);
      if (!were_finite(rows) || !are_keys_finite) fail_query_or_key(policy_);
    }
  }
  if (!verdict || verdict->commits) commit(rows);
  if (pipeline_) pipeline_->hand_on(out);
  return out;
}

at::Tensor CausalLM::agreed_step(const at::Tensor& tokens, std::span<const StepRow> rows) const {
  const quant::OwnThreads own_threads;
  const auto work = WorkScope::pass(tokens.size(0));
  Verdict verdict{.commits = pipeline_ && tokens.size(0) > kMicroTokens};
  std::vector<Session::Contents> before;
  for (std::size_t i = 0; verdict.commits && i < rows.size(); ++i) before.push_back(rows[i].session->contents());
  at::Tensor out = pipeline_ ? pass_in_parts(tokens, rows, &verdict) : pass(tokens, rows, &verdict);
  float refused = verdict.is_finite ? 0.0f : 1.0f;  // by how many ranks
  {
    const WorkScope sums(WorkKind::kRankSums);
    model_->compute().group->sum({&refused, 1});
  }
  if (refused == 0.0f) {
    if (!verdict.commits) commit(rows);
    return out;
  }
  for (std::size_t i = 0; i < before.size(); ++i) rows[i].session->put_back(std::move(before[i]));
  return {};
}

void CausalLM::refuse_values() const {
  throw Error(ErrorCode::kContract,
              "in one of this model's ranks an activation, a query or a key does not fit its dtype (policy " +
                  policy_.name() + "); load with " + Option::kDtype + " amp:bfloat16");
}

at::Tensor CausalLM::head(const at::Tensor& hidden) const { return leader_ ? leader_->head(hidden) : own_head(hidden); }

at::Tensor CausalLM::states(const at::Tensor& hidden) const { return leader_ ? leader_->states(hidden) : hidden; }

int CausalLM::stages() const noexcept { return pipeline_ ? pipeline_->stage().count : 1; }

at::Tensor CausalLM::of_last_stage(const at::Tensor& hidden) const {
  at::Tensor out;
  pipeline_->in_step([&] { out = pipeline_->of_last(hidden); });
  return out;
}

at::Tensor CausalLM::own_head(const at::Tensor& hidden) const {
  const at::Tensor x = pipeline_ ? of_last_stage(hidden) : hidden;
  return checked_logits(x, head_products(x));
}

at::Tensor CausalLM::head_products(const at::Tensor& x) const {
  const quant::OwnThreads own_threads;
  at::Tensor products;
  {
    const WorkScope work(WorkKind::kHead, [&] { return product_cost(*lm_head_, x); });
    products = lm_head_->multiply(x, at::kFloat);
  }
  return config_->head_rows > 0 ? of_all_ranks(products) : products;
}

at::Tensor CausalLM::checked_logits(const at::Tensor& x, at::Tensor products) const {
  const quant::OwnThreads own_threads;
  if (!is_finite(products)) {
    explain_not_finite(*this, policy_, [&] { return lm_head_->multiply(x, at::kFloat); });
    if (model_->compute().group) refuse_values();  // another rank's part
  }
  return logits_of(std::move(products), *config_);
}

// Each rank has the products of some rows of the head. Shape: (..., rows) -> (..., vocab_size).
at::Tensor CausalLM::of_all_ranks(const at::Tensor& products) const {
  std::vector<std::int64_t> shape = products.sizes().vec();
  shape.back() = config_->vocab_size;
  const at::Tensor all = at::zeros(shape, products.options());
  all.narrow(-1, config_->first_head_row, config_->head_rows).copy_(products);
  return summed(*model_->compute().group, all);
}

at::Tensor CausalLM::forward(const at::Tensor& tokens) {
  std::vector<Session> sessions = make_sessions(tokens.size(0));
  return head(hidden(tokens, sessions));
}

void CausalLM::check_contract() const {
  std::vector<Violation> violations;
  for (const auto& item : named_modules()) {
    if (const auto* linear = dynamic_cast<const Linear*>(item.value().get())) linear->check(item.key(), violations);
    if (const auto* norm = dynamic_cast<const Norm*>(item.value().get())) norm->check(item.key(), violations);
    check_device(item.key(), *item.value(), device(), violations);
  }
  if (violations.empty()) return;
  throw Error(ErrorCode::kContract, violations.front().module + ": " + violations.front().what);
}

}  // namespace halfbyte::models

#include <halfbyte/leading.h>

#include <map>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>

#include "models/architectures/model_config.h"
#include "models/modules/decoder.h"
#include "models/parallel/leader.h"
#include "models/parallel/pipeline.h"
#include "models/parallel/summed.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte {
namespace models {

class Follower {
 public:
  explicit Follower(const CausalLM& model) : model_(model), group_(*model.decoder().compute().group) {}

  void run() {
    const c10::InferenceMode guard;
    const PassWatch::Whole whole;  // as rank 0's passes are
    while (true) {
      const LeadMessage message = lead_message(group_.gather("").front());
      for (const SessionChange& change : message.changes) apply(change);
      for (const std::uint64_t step : message.forgotten) given_.erase(step);
      if (message.work == LedWork::kEnd) return;
      const auto work = kWorks[static_cast<std::size_t>(message.work)];
      if (work) (this->*work)(message);
    }
  }

 private:
  using Work = void (Follower::*)(const LeadMessage& message);
  static const Work kWorks[];  // by LedWork; null: nothing is to be done

  [[noreturn]] static void fail() {
    throw Error(ErrorCode::kContract, "rank 0 speaks of what this rank does not have: they are not in step any more");
  }

  Session& session(std::uint64_t name) {
    const auto found = sessions_.find(name);
    if (found == sessions_.end()) fail();
    return found->second;
  }

  void apply(const SessionChange& change) {
    switch (change.act) {
      case SessionAct::kMake:
        sessions_.insert_or_assign(change.session, model_.make_session());
        return;
      case SessionAct::kFork:
        sessions_.insert_or_assign(change.session, session(change.value).fork());
        return;
      case SessionAct::kCut:
        session(change.session).cut(static_cast<std::int64_t>(change.value));
        return;
      case SessionAct::kDrop:
        sessions_.erase(change.session);
    }
  }

  void step(const LeadMessage& message) {
    std::vector<StepRow> rows;
    for (const LedRow& row : message.rows) {
      rows.push_back({&session(row.session), row.tokens});
      rows.back().session->expect(row.expected);
    }
    const quant::RowsAlike alike(message.kind);
    const at::Tensor tokens = at::tensor(at::IntArrayRef(message.tokens));
    model_.check_step(tokens, rows);
    at::Tensor out = model_.agreed_step(tokens, rows);
    ++steps_;
    if (model_.pipeline_ && model_.pipeline_->stage().is_last() && out.defined()) given_[steps_ - 1] = std::move(out);
  }

  void head(const LeadMessage& message) {
    if (message.dtype >= static_cast<std::int64_t>(at::ScalarType::NumOptions)) fail();
    const at::Tensor none = at::zeros({message.count, model_.config().hidden_size},
                                      at::TensorOptions().dtype(static_cast<at::ScalarType>(message.dtype)));
    const quant::RowsAlike alike(message.kind);
    model_.head_products(summed(group_, none));
  }

  void head_of(const LeadMessage& message) {
    const quant::RowsAlike alike(message.kind);
    model_.head_products(model_.of_last_stage(rows_of(message.given)));
  }

  void states(const LeadMessage& message) { model_.of_last_stage(rows_of(message.given)); }

  // What is in them counts in the last stage alone. Shape: (rows, hidden_size).
  at::Tensor rows_of(std::span<const GivenRow> rows) const {
    if (rows.empty() || !model_.pipeline_) fail();
    if (!model_.pipeline_->stage().is_last())
      return at::empty({static_cast<std::int64_t>(rows.size()), model_.config().hidden_size}, at::kFloat);
    std::vector<at::Tensor> out;
    for (const GivenRow& one : rows) {
      const auto found = given_.find(one.step);
      if (found == given_.end() || one.row >= found->second.size(0)) fail();
      out.push_back(found->second.narrow(0, one.row, 1));
    }
    return at::cat(out);
  }

  const CausalLM& model_;
  Group& group_;
  std::map<std::uint64_t, Session> sessions_;
  std::uint64_t steps_ = 0;
  std::map<std::uint64_t, at::Tensor> given_;  // by a step, in the last stage
};

const Follower::Work Follower::kWorks[] = {nullptr,           &Follower::step, &Follower::head, &Follower::head_of,
                                           &Follower::states, nullptr};

}  // namespace models

Leading::Leading(const models::CausalLM& model, LeadOptions options) : model_(model) {
  const auto& group = model.decoder().compute().group;
  if (!group || group->rank() != 0 || model.leader_)
    throw Error(ErrorCode::kInvalidArgument,
                "it is rank 0 of those that run a model together that leads it, and no other; once at a time");
  model.leader_ = std::make_unique<models::Leader>(model, std::move(options));
}

Leading::~Leading() { model_.leader_.reset(); }

void follow(const models::CausalLM& model) {
  const auto& group = model.decoder().compute().group;
  if (!group || group->rank() == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "ranks after the first follow, of those that run a model together; this is none of them");
  models::Follower(model).run();
}

}  // namespace halfbyte

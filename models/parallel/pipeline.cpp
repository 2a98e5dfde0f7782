#include "models/parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include <halfbyte/error.h>

#include "models/parallel/summed.h"
#include "models/profile/recorder.h"

namespace halfbyte::models {

Pipeline::Pipeline(std::shared_ptr<Group> group, const Stage& stage, std::optional<at::ScalarType> stream,
                   std::int64_t hidden_size)
    : group_(std::move(group)), stage_(stage), stream_(stream), hidden_size_(hidden_size) {}

void Pipeline::check_whole() const {
  if (is_broken_)
    throw Error(
        ErrorCode::kContract,
        "an earlier pass through this model's stages was broken off, and they are not in step any more; load it "
        "again in all ranks");
}

// Wide enough for any stream; which one it was is said where the policy does not.
void Pipeline::send(const at::Tensor& values, int to) const {
  check_shareable(values);
  const WorkScope work(WorkKind::kRankSums);
  const at::Tensor wide = values.to(at::kFloat).contiguous();
  group_->send({wide.const_data_ptr<float>(), static_cast<std::size_t>(wide.numel())}, to);
  if (stream_) return;
  const auto dtype = static_cast<float>(values.scalar_type());
  group_->send({&dtype, 1}, to);
}

at::Tensor Pipeline::receive(at::IntArrayRef shape, int from) const {
  const WorkScope work(WorkKind::kRankSums);
  const at::Tensor wide = at::empty(shape, at::kFloat);
  group_->receive({wide.mutable_data_ptr<float>(), static_cast<std::size_t>(wide.numel())}, from);
  if (stream_) return wide.to(*stream_);
  float dtype = 0;
  group_->receive({&dtype, 1}, from);
  return wide.to(static_cast<at::ScalarType>(static_cast<int>(dtype)));
}

at::Tensor Pipeline::received(std::int64_t tokens) const {
  if (stage_.is_first()) return {};
  return receive({tokens, hidden_size_}, stage_.rank_at(stage_.index - 1));
}

void Pipeline::hand_on(const at::Tensor& stream) const {
  if (!stage_.is_last()) send(stream, stage_.rank_at(stage_.index + 1));
}

at::Tensor Pipeline::of_last(const at::Tensor& hidden) const {
  if (!stage_.is_last()) return receive(hidden.sizes(), stage_.rank_at(stage_.count - 1));
  for (int stage = 0; stage + 1 < stage_.count; ++stage) send(hidden, stage_.rank_at(stage));
  return hidden;
}

std::vector<MicroBatch> micro_batches(std::span<const StepRow> rows, std::int64_t most) {
  std::vector<MicroBatch> out;
  std::int64_t all = 0;
  for (const StepRow& row : rows) all += row.tokens;
  // Even ones: each reads all of a stage's weights.
  const std::int64_t count_of_them = (all + most - 1) / most;
  if (count_of_them > 0) most = (all + count_of_them - 1) / count_of_them;
  for (const StepRow& row : rows) {
    for (std::int64_t left = row.tokens; left > 0;) {
      if (out.empty() || out.back().tokens == most)
        out.push_back({out.empty() ? 0 : out.back().first + out.back().tokens, 0, {}});
      MicroBatch& last = out.back();
      const std::int64_t count = std::min(left, most - last.tokens);
      last.rows.push_back({row.session, count});
      last.tokens += count;
      left -= count;
    }
  }
  return out;
}

ExpectedRows::ExpectedRows(std::span<const StepRow> rows) : rows_(rows) {
  for (const StepRow& row : rows) {
    before_.push_back(row.session->expected());
    row.session->expect(std::max(before_.back(), row.session->length() + row.tokens));
  }
}

ExpectedRows::~ExpectedRows() {
  for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].session->expect(before_[i]);
}

}  // namespace halfbyte::models

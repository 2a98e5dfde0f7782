#include "models/parallel/summed.h"

#include <string>
#include <utility>

#include <halfbyte/error.h>
#include <halfbyte/profile.h>

#include "models/parallel/alike.h"
#include "models/profile/recorder.h"

namespace halfbyte::models {
namespace {

class RoundingGroup : public Group {
 public:
  explicit RoundingGroup(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  void sum(std::span<float> values) override { group_->sum_rounded(values); }
  void sum_rounded(std::span<float> values) override { group_->sum_rounded(values); }
  std::vector<std::string> gather(const std::string& text) override { return group_->gather(text); }

 private:
  std::shared_ptr<Group> group_;
};

}  // namespace

std::shared_ptr<Group> rounding_group(std::shared_ptr<Group> group) {
  return std::make_shared<RoundingGroup>(std::move(group));
}

void check_shareable(const at::Tensor& x) {
  if (!x.is_cpu())
    throw Error(ErrorCode::kUnsupported, "ranks add what they have on the CPU alone; load the model there");
  if (x.requires_grad())
    throw Error(ErrorCode::kUnsupported,
                "a model that ranks share is not trained: sums between ranks have no gradients");
}

at::Tensor summed(Group& group, const at::Tensor& x) {
  check_shareable(x);
  const WorkScope work(WorkKind::kRankSums);
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  group.sum({wide.mutable_data_ptr<float>(), static_cast<std::size_t>(wide.numel())});
  return wide.to(x.scalar_type());
}

void check_same_tokens(Group* group, std::span<const std::int64_t> tokens) {
  if (!group) return;
  const std::string own = std::to_string(tokens.size()) + " of " + likeness_text(likeness(std::as_bytes(tokens)));
  check_alike(*group, std::span(&own, 1), "was given other tokens");
}

}  // namespace halfbyte::models

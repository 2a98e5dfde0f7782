#include "models/parallel/summed.h"

#include <halfbyte/error.h>
#include <halfbyte/profile.h>

#include "models/profile/recorder.h"

namespace halfbyte::models {

at::Tensor summed(Group& group, const at::Tensor& x) {
  if (!x.is_cpu())
    throw Error(ErrorCode::kUnsupported, "ranks add what they have on the CPU alone; load the model there");
  if (x.requires_grad())
    throw Error(ErrorCode::kUnsupported,
                "a model that ranks share is not trained: sums between ranks have no gradients");
  const WorkScope work(WorkKind::kRankSums);
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  group.sum({wide.mutable_data_ptr<float>(), static_cast<std::size_t>(wide.numel())});
  return wide.to(x.scalar_type());
}

}  // namespace halfbyte::models

// Hands a model its tensors from an opened checkpoint: mapped where they can be used as they are, cast where the policy
// says so, each noted in the report.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <halfbyte/load_low_bit.h>

#include "loader/files/checkpoint.h"
#include "models/modules/tensor_source.h"

namespace halfbyte {

class CheckpointSource : public models::TensorSource {
 public:
  CheckpointSource(const files::Checkpoint& checkpoint, const LoadOptions& options, LoadReport& report);

  models::LinearWeights linear(const std::string& module, bool has_bias) override;
  at::Tensor parameter(const std::string& name) override;
  at::ScalarType derived_buffer_dtype(const std::string& name) override;
  // Stored buffers that the model derives by itself: in the report, not in the model.
  void report_unused_buffers();

 private:
  const files::TensorRecord& record(const std::string& name) const;
  std::string owner_of(const std::string& name) const;
  models::Role role_of(const std::string& name) const;
  bool is_kept_float32(const std::string& name) const;
  at::Tensor stored(const std::string& name);
  at::Tensor dense(const std::string& name);
  models::LowBitTensor packed(const files::TensorRecord& record);

  const files::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  LoadReport& report_;
  std::vector<std::shared_ptr<files::MappedFile>> maps_;  // by data file; null: not mapped yet
  std::map<std::string, at::Tensor> shared_;              // dense tensors by owner: a tie is one storage
};

}  // namespace halfbyte

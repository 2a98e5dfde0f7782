// Gives tensors from an opened checkpoint: mapped where they can be used as they are, cast where the policy says so,
// each noted in the report.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>
#include <halfbyte/low_bit_tensor.h>

#include "loader/dtype_choice.h"
#include "loader/files/checkpoint.h"
#include "loader/report_lines.h"
#include "models/modules/tensor_source.h"

namespace halfbyte {

class CheckpointSource : public models::TensorSource {
 public:
  // Verifies config.json if the options ask for it. All three must outlive the source; what it gave may outlive it.
  CheckpointSource(const files::Checkpoint& checkpoint, const LoadOptions& options, LoadReport& report,
                   at::Device device = at::kCPU);

  // For the modules: "X.weight" packed if it is packed.
  models::LinearWeights linear(const std::string& module, bool has_bias) override;
  models::LinearWeights embedding(const std::string& module) override;
  models::LinearWeights stacked(const std::string& name, std::int64_t index, bool holds_columns) override;
  at::Tensor parameter(const std::string& name) override { return dense(name); }
  at::ScalarType derived_buffer_dtype(const std::string& name) override;

  // Through ties. Errors: kCorrupt when there is no such tensor.
  const files::TensorRecord& record(const std::string& name) const { return record_of(checkpoint_, name); }
  models::Role role_of(const std::string& name) const { return choice_.role_of(record(name)); }
  bool is_kept_float32(const std::string& name) const { return choice_.is_kept_float32(name); }

  // In the policy's dtype; a packed one is dequantised. Tied names give one storage. Reported.
  at::Tensor dense(const std::string& name);
  // As it lies in the file. Reported. Precondition: the record has a scheme.
  LowBitTensor packed(const std::string& name);
  // The values in this dtype, or as they are stored, neither kept nor reported; the result may be the mapping itself.
  // Errors: kContract naming the tensor when finite values do not fit float16.
  at::Tensor read(const files::TensorRecord& record, at::ScalarType type);
  at::Tensor mapped(const files::StoredTensor& tensor, at::IntArrayRef shape, at::ScalarType type);
  at::Tensor translated(const files::StoredTensor& tensor, at::IntArrayRef shape, at::ScalarType type) const;
  at::Tensor scales(const files::TensorRecord& record);
  LowBitTensor read_packed(const files::TensorRecord& record);
  // Compares hashes, once a tensor, if the options ask for it. Errors: kCorrupt naming the tensor.
  void verify(const files::TensorRecord& record);

 private:
  using Stack = std::variant<at::Tensor, LowBitTensor>;

  at::Tensor stored(const std::string& name);
  // Packed if it is packed, with its policy.
  models::LinearWeights weight(const std::string& name);
  // `value`, not all of which is finite, with what only quantising took beyond float16's end at that end. Errors: as
  // read().
  at::Tensor within_float16(const files::TensorRecord& record, at::Tensor value);
  at::Tensor load(const files::TensorRecord& record, LoadedTensor& line);
  // Notes in `line` that `value` goes to another device than the CPU; false: it stays where it is.
  bool leaves_the_cpu(LoadedTensor& line) const;

  const files::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  LoadReport& report_;
  DtypeChoice choice_;
  std::vector<std::shared_ptr<files::MappedFile>> maps_;  // by data file; null: not mapped yet
  at::Device device_ = at::kCPU;                          // where what it gives goes
  std::map<std::string, at::Tensor> shared_;              // dense tensors by owner: a tie is one storage
  std::map<std::string, Stack> stacks_;                   // rank-3 tensors by name: each is loaded and reported once
  std::map<std::string, LowBitTensor> kept_;              // packed ones with memory of their own, for the same reason
  std::set<std::string> verified_;
};

}  // namespace halfbyte

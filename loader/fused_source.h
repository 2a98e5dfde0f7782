// Gives a checkpoint's weights in plain memory: mapped where they can be used as they are, cast where the policy says
// so, each noted in the report. As CheckpointSource, for models that need no LibTorch.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <halfbyte/linear.h>
#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>

#include "loader/dtype_choice.h"
#include "loader/files/checkpoint.h"
#include "models/cpu/fused_weights.h"

namespace halfbyte {

class FusedSource {
 public:
  // All must outlive it.
  FusedSource(const files::Checkpoint& checkpoint, const LoadOptions& options, quant::Arithmetic arithmetic,
              LoadReport& report);

  // Of every module of a model. Nothing, with the reason in why_not(), where a tensor is for load_low_bit() alone.
  // Errors: kCorrupt, kNoResources.
  bool gather(const models::ModelConfig& config, models::cpu::FusedWeights& out);
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  using Bytes = std::shared_ptr<std::byte[]>;

  bool refuse(const std::string& name, const std::string& what);
  bool gather(const models::ModuleAt& module, models::cpu::FusedWeightSet& out);
  // A tensor of all experts' matrices, whose parts they get.
  bool gather_stack(const models::ModuleAt& module, const models::Naming& names, models::cpu::FusedLayer& out);
  bool product(const std::string& name, models::cpu::FusedWeight& out);
  void packed(const std::string& name, models::cpu::FusedWeight& out);
  bool dense(const std::string& name, models::cpu::FusedValues& out);
  bool cast(const files::TensorRecord& record, Dtype wanted, LoadedTensor& line, const std::byte*& data);
  void scales(const files::TensorRecord& record, quant::WeightMatrix& out);
  void order(const files::TensorRecord& record, models::cpu::FusedWeight& out);
  // A stored tensor's bytes, mapped or computed.
  const std::byte* bytes_of(const std::string& stored);
  std::byte* memory(std::size_t bytes);

  const files::Checkpoint& checkpoint_;
  quant::Arithmetic arithmetic_;
  LoadReport& report_;
  DtypeChoice choice_;
  std::vector<std::shared_ptr<files::MappedFile>> maps_;    // by data file; null: not mapped yet
  std::map<std::string, models::cpu::FusedValues> shared_;  // dense ones by owner: a tie is one storage
  std::map<std::string, models::cpu::FusedWeight> kept_;    // packed ones with memory of their own, for the same reason
  std::vector<std::shared_ptr<const void>> memory_;
  std::string why_not_;
};

}  // namespace halfbyte

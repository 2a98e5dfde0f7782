// A tensor with what adapters add to it, row by row. Needs no LibTorch.
#pragma once

#include <memory>
#include <vector>

#include <halfbyte/quantize.h>

#include "convert/in_order.h"
#include "convert/merge/peft_adapter.h"
#include "loader/files/translated_file.h"

namespace halfbyte::convert {

// Of one adapter, in one tensor.
struct AdapterShare {
  std::shared_ptr<const PeftAdapter> adapter;
  const PeftModule* module;  // of that
  double weight;
};

// What the adapters change, against the tensor's values, and what the dtype on record rounds of the sum.
struct MergeErrors {
  quant::ErrorStats change;
  quant::ErrorStats rounding;

  void add(const MergeErrors& other) noexcept {
    change.add(other.change);
    rounding.add(other.rounding);
  }
};

// Those of one tensor, added up row by row whatever the order in which rows are read, so that the sum is one.
class MergedTensor {
 public:
  void add(std::int64_t row, const MergeErrors& errors) { rows_.put(static_cast<std::uint64_t>(row), errors); }
  const MergeErrors& errors() const noexcept { return errors_; }  // once all was read

 private:
  MergeErrors errors_;
  InOrder<MergeErrors> rows_{[this](const MergeErrors& errors) { errors_.add(errors); }};
};

// The bytes of the sum in `dtype`. `record` is of `source`, and a matrix. Each row counts in `merged` when its first
// value is read.
std::unique_ptr<files::TensorBytes> merged_rows(std::shared_ptr<const files::Checkpoint> source,
                                                const files::TensorRecord& record, Dtype dtype,
                                                std::vector<AdapterShare> shares, std::shared_ptr<MergedTensor> merged);

}  // namespace halfbyte::convert

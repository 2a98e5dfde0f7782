// A layer's keys and values in plain memory. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <memory>

#include <halfbyte/key_values.h>

#include "models/cpu/workspace.h"
#include "models/sessions/key_blocks.h"

namespace halfbyte::models::cpu {

class FusedKeyValues final : public KeyBlocks {
 public:
  // kInt8: held in codes, else in `dtype`.
  FusedKeyValues(const Shape& shape, Dtype dtype, KeyValues key_values);

  std::unique_ptr<LayerState> fork() const override { return std::make_unique<FusedKeyValues>(*this); }
  KeyValues key_values() const noexcept override { return key_values_; }
  std::int64_t bytes_of_token() const noexcept override;

 private:
  std::int64_t bytes_of(std::int64_t dim) const noexcept;  // of a block's keys, or of its values
  std::shared_ptr<Block> fresh() const override;
  std::shared_ptr<Block> copy(const Block& block) const override;

  Dtype dtype_;
  KeyValues key_values_;
};

}  // namespace halfbyte::models::cpu

// Tensors of a .safetensors file as LibTorch tensors, for tests that compare with what others computed.
#pragma once

#include <filesystem>
#include <string>

#include "loader/files/checkpoint.h"
#include "quant/operators/torch_dtype.h"
#include "tests/catch.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::tests {

inline at::Tensor read_tensor(const std::filesystem::path& file, const std::string& name) {
  const files::Checkpoint checkpoint = files::open_checkpoint(file);
  const files::StoredTensor* tensor = checkpoint.find(name);
  REQUIRE(tensor != nullptr);
  at::Tensor out = at::empty(tensor->shape, *to_torch(tensor->dtype));
  checkpoint.data_files.at(tensor->file)
      ->read(tensor->offset, {static_cast<std::byte*>(out.mutable_data_ptr()), tensor->size_bytes});
  return out;
}

// As testing::write_checkpoint takes it. Precondition: contiguous.
inline testing::TestTensor to_stored(const std::string& name, const at::Tensor& tensor) {
  return {name,
          std::string(info(*from_torch(tensor.scalar_type())).safetensors),
          tensor.sizes().vec(),
          {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

inline std::vector<std::int64_t> to_ids(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous().flatten();
  return {flat.const_data_ptr<std::int64_t>(), flat.const_data_ptr<std::int64_t>() + flat.numel()};
}

}  // namespace halfbyte::tests

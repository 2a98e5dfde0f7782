#include "convert/training/tensor_file.h"

#include <map>
#include <utility>

#include <ATen/ops/empty.h>

#include <halfbyte/error.h>

#include "loader/files/data_file_layout.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"
#include "loader/files/safetensors.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;

files::DataFileLayout layout_of(const std::vector<training::NamedTensor>& tensors) {
  std::vector<files::OutputTensor> outputs;
  for (const auto& [name, tensor] : tensors)
    outputs.push_back(files::output_tensor(name, from_torch(tensor.scalar_type()).value(), tensor.sizes().vec()));
  return files::lay_out("", std::move(outputs), {{"format", "pt"}});
}

std::string hash_of(const files::InputFile& file) {
  files::Hash128 hash;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < file.size_bytes(); at += block.size()) {
    block.resize(std::min(kBlockBytes, file.size_bytes() - at));
    file.read(at, block);
    hash.update(block);
  }
  return hash.hex();
}

}  // namespace

std::string write_tensors(const files::fs::path& path, const std::vector<training::NamedTensor>& tensors) {
  const files::DataFileLayout layout = layout_of(tensors);
  std::map<std::string, at::Tensor> by_name;
  for (const auto& [name, tensor] : tensors) by_name.emplace(name, tensor);
  files::OutputFile file(path, layout.size_bytes);
  files::Hash128 hash;
  file.write(0, std::as_bytes(std::span(layout.header)));
  hash.update(layout.header);
  for (const files::OutputTensor& one : layout.tensors) {
    const at::Tensor tensor = by_name.at(one.name).detach().contiguous();
    const std::span bytes(static_cast<const std::byte*>(tensor.const_data_ptr()), one.size_bytes);
    file.write(one.offset, bytes);
    hash.update(bytes);
  }
  file.sync();
  return hash.hex();
}

std::vector<training::NamedTensor> read_tensors(const files::fs::path& path, const std::string& hash) {
  const files::InputFile file(path);
  if (hash_of(file) != hash)
    throw Error(ErrorCode::kCorrupt, files::printable_path(path) + ": its bytes are not those that were written");
  std::vector<training::NamedTensor> out;
  for (const files::SafetensorsEntry& entry : files::read_safetensors_header(file).entries) {
    const auto type = to_torch(entry.dtype);
    if (!type) throw Error(ErrorCode::kCorrupt, files::printable_path(path) + ": '" + entry.name + "' is of no dtype");
    at::Tensor tensor = at::empty(entry.shape, *type);
    file.read(entry.offset, {static_cast<std::byte*>(tensor.mutable_data_ptr()), entry.size_bytes});
    out.push_back({entry.name, std::move(tensor)});
  }
  return out;
}

}  // namespace halfbyte::convert

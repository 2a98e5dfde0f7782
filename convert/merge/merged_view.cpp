#include "convert/merge/merged_view.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "convert/export/dequantized_view.h"
#include "loader/files/derive.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/translation.h"

namespace halfbyte::convert {
namespace {

using files::Checkpoint;
using files::TensorRecord;

[[noreturn]] void refuse(const PeftAdapter& adapter, const std::string& module, ErrorCode code,
                         const std::string& problem) {
  throw Error(code, files::printable_path(adapter.directory) + ": its adapter of " + files::in_quotes(module) +
                        " cannot be merged: " + problem);
}

// Why a module has no matrix of its own; empty: the model has no such module at all.
std::string why_missing(const Checkpoint& source, const std::string& module) {
  for (const TensorRecord& record : source.manifest.tensors) {
    const std::size_t dot = record.name.rfind('.');
    if (record.shape.size() == 3 && dot != std::string::npos && module.starts_with(record.name.substr(0, dot + 1)))
      return "its weight is a part of " + files::in_quotes(record.name) + ", a stack of experts";
  }
  return {};
}

void check_untied(const Checkpoint& source, const PeftAdapter& adapter, const PeftModule& module) {
  auto ties = files::declared_ties(source);
  std::ranges::copy(source.manifest.ties, std::back_inserter(ties));
  for (const auto& [alias, owner] : ties) {
    if (alias != module.name + ".weight") continue;
    refuse(adapter, module.name, ErrorCode::kUnsupported,
           "its weight is " + files::in_quotes(owner) + " too, which the adapter is not for");
  }
}

const TensorRecord& record_of(const Checkpoint& source, const PeftAdapter& adapter, const PeftModule& module) {
  check_untied(source, adapter, module);
  const TensorRecord* found = source.manifest.find(module.name + ".weight");
  if (!found) {
    const std::string why = why_missing(source, module.name);
    if (!why.empty()) refuse(adapter, module.name, ErrorCode::kUnsupported, why);
    refuse(adapter, module.name, ErrorCode::kInvalidArgument,
           "the model has no tensor " + files::in_quotes(module.name + ".weight"));
  }
  if (!files::TensorReader::can_read(*found))
    refuse(adapter, module.name, ErrorCode::kUnsupported, "its weight is " + std::string(name(found->stored_dtype)));
  if (found->shape != std::vector{module.out_features(), module.in_features()})
    refuse(adapter, module.name, ErrorCode::kInvalidArgument,
           "it is for a weight of " + files::printable(std::vector{module.out_features(), module.in_features()}) +
               ", and the model's is " + files::printable(found->shape));
  return *found;
}

using SharesOf = std::map<std::string, std::vector<AdapterShare>>;  // by the tensor's name

SharesOf shares_of(const Checkpoint& source, std::span<const OpenAdapter> adapters) {
  SharesOf out;
  for (const auto& [adapter, weight] : adapters) {
    for (const PeftModule& module : adapter->modules)
      out[record_of(source, *adapter, module).name].push_back({adapter, &module, weight});
  }
  return out;
}

}  // namespace

MergedView merged_view(Checkpoint source, std::span<const OpenAdapter> adapters) {
  const SharesOf shares = shares_of(source, adapters);
  const auto original = std::make_shared<const Checkpoint>(std::move(source));
  MergedView view;
  view.checkpoint = with_dense(original, [&](const TensorRecord& record, Dtype dtype) {
    const auto found = shares.find(record.name);
    if (found == shares.end()) return std::unique_ptr<files::TensorBytes>();
    auto& merged = view.merged[record.name] = std::make_shared<MergedTensor>();
    return merged_rows(original, record, dtype, found->second, merged);
  });
  return view;
}

}  // namespace halfbyte::convert

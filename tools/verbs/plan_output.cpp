#include "tools/verbs/plan_output.h"

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const files::StoredTensor& stored, const convert::PlannedTensor& tensor) {
  ordered_json row = {{"name", stored.name},
                      {"shape", stored.shape},
                      {"dtype", name(stored.dtype)},
                      {"role", models::name(tensor.role)},
                      {"scheme", nullptr},
                      {"group_size", nullptr},
                      {"scale_dtype", nullptr},
                      {"reason", said(tensor.reason)},
                      {"tied_to", nullptr},
                      {"bytes_before", tensor.bytes_before},
                      {"bytes_after", tensor.bytes_after}};
  if (!tensor.tied_to.empty()) row["tied_to"] = tensor.tied_to;
  if (tensor.scheme != nullptr) {
    row["scheme"] = tensor.scheme->name;
    row["group_size"] = tensor.group_size;
    row["scale_dtype"] = name(tensor.scale_dtype);
  }
  return row;
}

void print_plan_json(const files::Checkpoint& source, const convert::Plan& plan, const ordered_json& calibration) {
  ordered_json tensors = ordered_json::array();
  for (const convert::PlannedTensor& tensor : plan.tensors)
    tensors.push_back(json_of(source.tensors[tensor.source], tensor));
  print_json({{"bytes_before", plan.bytes_before},
              {"bytes_after", plan.bytes_after},
              {"notes", said(plan.notes)},
              {"calibration", calibration},
              {"tensors", std::move(tensors)}});
}

std::string treatment(const convert::PlannedTensor& tensor) {
  if (!tensor.tied_to.empty()) return "tied to " + tensor.tied_to + ": not written again";
  if (tensor.scheme == nullptr) return "kept: " + said(tensor.reason);
  const std::string scheme = std::string(tensor.scheme->name) + " g" + std::to_string(tensor.group_size);
  return tensor.reason.empty() ? scheme : scheme + " (" + said(tensor.reason) + ")";
}

void print_plan_table(const files::Checkpoint& source, const convert::Plan& plan, const ordered_json& calibration) {
  Table table(
      {{"tensor"}, {"shape"}, {"dtype"}, {"before", Align::kRight}, {"after", Align::kRight}, {"scheme, or why not"}});
  std::int64_t quantized = 0;
  std::int64_t kept = 0;
  for (const convert::PlannedTensor& tensor : plan.tensors) {
    const files::StoredTensor& stored = source.tensors[tensor.source];
    quantized += tensor.scheme != nullptr ? 1 : 0;
    kept += tensor.scheme == nullptr && tensor.tied_to.empty() ? 1 : 0;
    table.add({stored.name, human_shape(stored.shape), std::string(name(stored.dtype)),
               human_bytes(tensor.bytes_before), human_bytes(tensor.bytes_after), treatment(tensor)});
  }
  table.print();
  if (!calibration.is_null())
    print_line("calibration: " + calibration_words(calibration) + " in " +
               counted(calibration["sequences"].get<std::int64_t>(), "sequence"));
  print_line(human_bytes(plan.bytes_before) + " -> " + human_bytes(plan.bytes_after) + " (" +
             counted(quantized, "tensor") + " to quantise, " + std::to_string(kept) + " kept); nothing was written");
}

}  // namespace

std::string calibration_words(const ordered_json& calibration) {
  return calibration["method"].get<std::string>() + " on " +
         counted(calibration["tokens"].get<std::int64_t>(), "token");
}

void print_plan(const files::Checkpoint& source, const convert::Plan& plan, const ordered_json& calibration,
                bool is_json) {
  if (is_json) {
    print_plan_json(source, plan, calibration);
  } else {
    print_plan_table(source, plan, calibration);
  }
}

}  // namespace halfbyte::cli

// What `inspect --policy` prints, as text and as JSON.
#include "tools/cli/errors.h"

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/verbs/inspect_output.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

std::uint64_t peak_bytes(const files::LoadCost& cost) {
  return cost.mapped_bytes() + cost.own_bytes() + cost.read_to_cast_bytes;
}

std::string stored_text(const files::Checkpoint& checkpoint, const std::string& tensor) {
  const files::TensorRecord* record = checkpoint.manifest.find(tensor);
  return record != nullptr ? stored_as(*record) : "-";
}

ordered_json json_of(const LoadedTensor& tensor) {
  ordered_json row = {{"name", tensor.name},
                      {"is_buffer", tensor.is_buffer},
                      {"recorded", nullptr},
                      {"loaded", tensor.loaded},
                      {"placement", name(tensor.placement)},
                      {"bytes", tensor.bytes},
                      {"operand", tensor.operand.empty() ? ordered_json() : ordered_json(tensor.operand)},
                      {"note", tensor.note}};
  if (tensor.recorded) row["recorded"] = name(*tensor.recorded);
  return row;
}

}  // namespace

void print_load_cost(const files::Checkpoint& checkpoint, const files::LoadCost& cost) {
  print_line(printable(checkpoint.directory.string()) + ", loaded under the policy " + cost.report.policy);
  print_line("");
  Table table({{"tensor"}, {"recorded"}, {"stored"}, {"loaded"}, {"how"}, {"bytes", Align::kRight}});
  for (const LoadedTensor& tensor : cost.report.tensors) {
    table.add({tensor.name, tensor.recorded ? std::string(name(*tensor.recorded)) : "not known",
               stored_text(checkpoint, tensor.name), tensor.loaded, name(tensor.placement), human_bytes(tensor.bytes)});
  }
  table.print("  ");
  for (const std::string& note : cost.report.notes) print_line(printable("  " + note));
  print_line("");
  print_line(human_bytes(cost.mapped_bytes()) + " mapped from the files and shared; each process holds " +
             human_bytes(cost.own_bytes()) + " of its own,");
  print_line("cast or copied; at most " + human_bytes(peak_bytes(cost)) + " in memory while loading");
}

void print_load_cost_json(const files::Checkpoint& checkpoint, const files::LoadCost& cost) {
  ordered_json tensors = ordered_json::array();
  for (const LoadedTensor& tensor : cost.report.tensors) tensors.push_back(json_of(tensor));
  print_json({{"path", checkpoint.directory.string()},
              {"policy",
               {{"name", cost.report.policy},
                {"mapped_bytes", cost.mapped_bytes()},
                {"own_bytes", cost.own_bytes()},
                {"read_to_cast_bytes", cost.read_to_cast_bytes},
                {"peak_bytes", peak_bytes(cost)},
                {"notes", cost.report.notes},
                {"tensors", std::move(tensors)}}}});
}

}  // namespace halfbyte::cli

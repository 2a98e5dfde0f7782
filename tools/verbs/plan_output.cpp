#include "tools/verbs/plan_output.h"

#include <nlohmann/json.hpp>

#include "convert/embedding_advice.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/conversion_json.h"

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
                      {"part_of", nullptr},
                      {"bytes_before", tensor.bytes_before},
                      {"bytes_after", tensor.bytes_after}};
  if (!tensor.tied_to.empty()) row["tied_to"] = tensor.tied_to;
  if (!tensor.part_of.empty()) row["part_of"] = tensor.part_of;
  if (tensor.scheme != nullptr) {
    row["scheme"] = tensor.scheme->name;
    row["group_size"] = tensor.group_size;
    row["scale_dtype"] = name(tensor.scale_dtype);
  }
  return row;
}

ordered_json ways_json(const std::vector<convert::WayLoss>& ways) {
  ordered_json out = ordered_json::array();
  for (const convert::WayLoss& way : ways)
    out.push_back({{"stored_as", way.stored_as}, {"bytes", way.bytes}, {"predicted_kl", way.loss}});
  return out;
}

void print_plan_json(const files::Checkpoint& source, const convert::Plan& plan, const convert::Mix* mix,
                     const ordered_json& calibration, const Text& advice) {
  ordered_json tensors = ordered_json::array();
  for (const convert::PlannedTensor& tensor : plan.tensors) {
    const files::StoredTensor& stored = source.tensors[tensor.source];
    tensors.push_back(json_of(stored, tensor));
    if (!mix) continue;
    const auto ways = mix->ways.find(stored.name);
    tensors.back()["ways"] = ways == mix->ways.end() ? ordered_json(nullptr) : ways_json(ways->second);
  }
  ordered_json out = {{"bytes_before", plan.bytes_before},
                      {"bytes_after", plan.bytes_after},
                      {"notes", said(plan.notes)},
                      {"calibration", calibration},
                      {"advice", advice.empty() ? ordered_json(nullptr) : ordered_json(said(advice))},
                      {"tensors", std::move(tensors)}};
  if (mix) out["budget"] = mix_json(*mix);
  print_json(out);
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
    kept += tensor.scheme == nullptr && tensor.tied_to.empty() && tensor.part_of.empty() ? 1 : 0;
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

// What was chosen from, with what it would be to store all alike.
void print_mix(const convert::Mix& mix) {
  Table table({{"stored as"},
               {"tensors", Align::kRight},
               {"weights", Align::kRight},
               {"size", Align::kRight},
               {"bits if all", Align::kRight},
               {"predicted KL if all", Align::kRight}});
  for (const convert::MixRow& row : mix.rows) {
    const bool is_choice = row.bits_of_all > 0;
    table.add({row.stored_as, std::to_string(row.tensors), std::to_string(row.weights), human_bytes(row.bytes),
               is_choice ? fixed(row.bits_of_all, 2) : "", is_choice ? fixed(row.loss_of_all, 5) : ""});
  }
  table.print();
  print_line(mix_line(mix));
}

}  // namespace

std::string calibration_words(const ordered_json& calibration) {
  return calibration["method"].get<std::string>() + " on " +
         counted(calibration["tokens"].get<std::int64_t>(), "token");
}

std::string mix_line(const convert::Mix& mix) {
  return fixed(mix.bits(), 2) + " bits a weight, predicted KL divergence " + fixed(mix.loss, 5) + " (measured on " +
         said(mix.basis) + ")";
}

void print_plan(const convert::Conversion& conversion, const convert::Quantization& quantization,
                const ordered_json& calibration, bool is_json) {
  const files::Checkpoint& source = *conversion.source;
  const convert::Mix* const mix = conversion.options.mix.get();
  const Text advice = convert::embedding_advice(source, quantization.plan, conversion.options);
  if (is_json) return print_plan_json(source, quantization.plan, mix, calibration, advice);
  print_plan_table(source, quantization.plan, calibration);
  if (mix) print_mix(*mix);
  if (!advice.empty()) print_line(said(advice));
}

}  // namespace halfbyte::cli

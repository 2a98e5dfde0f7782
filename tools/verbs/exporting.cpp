#include "tools/verbs/exporting.h"

#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "convert/gguf/export.h"
#include "tools/cli/format.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

template <class Options>
void attach(const Caller& caller, Options& options) {
  options.stop = caller.stop;
  options.progress = caller.progress;
}

// What every export says of itself; `own` and `end` are what the kind of export adds to the object and to the line.
template <class Done>
Outcome summary_of(const ExportWords& words, const Done& done, const ordered_json& own, const std::string& end,
                   std::vector<std::string> notes, const Caller& caller) {
  ordered_json json = {{"source", words.checkpoint},
                       {"destination", words.destination},
                       {"format", words.format},
                       {"source_bytes", done.source_bytes},
                       {"result_bytes", done.result_bytes}};
  json.update(own);
  json["notes"] = notes;
  json["warnings"] = said(done.warnings, *caller.spelling);
  return {models::HeldOrderedJson(std::move(json)),
          human_bytes(done.source_bytes) + " -> " + human_bytes(done.result_bytes) + end, std::move(notes),
          said(done.warnings, *caller.spelling)};
}

Outcome to_gguf(const ExportWords& words, const Caller& caller) {
  if (!words.assume_original.empty())
    throw Error(ErrorCode::kInvalidArgument,
                Option::kAssumeOriginal + " is for directories; " + Option::kType + " chooses for gguf");
  convert::GgufExportOptions options{.type = words.type, .requantize = words.requantize, .overwrite = words.overwrite};
  attach(caller, options);
  const auto done = convert::export_gguf(words.checkpoint, words.destination, options);
  return summary_of(words, done,
                    {{"exact_tensors", done.exact_tensors}, {"requantized_tensors", done.requantized_tensors}},
                    " (" + counted(done.exact_tensors, "packed tensor") + " with the same numbers, " +
                        std::to_string(done.requantized_tensors) + " quantised again)",
                    done.notes, caller);
}

Outcome to_safetensors(const ExportWords& words, const Caller& caller) {
  if (!words.type.empty() || words.requantize)
    throw Error(ErrorCode::kInvalidArgument, Option::kType + " and " + Option::kRequantize +
                                                 " are for formats that quantise; `halfbyte dequantize " +
                                                 Option::kDtype + "` chooses a dtype");
  convert::DequantizeOptions options;
  options.overwrite = words.overwrite;
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  attach(caller, options);
  const auto done = convert::dequantize(words.checkpoint, words.destination, options);
  return summary_of(words, done, {{"dequantized_tensors", done.dequantized_tensors}},
                    " (" + counted(done.dequantized_tensors, "tensor") + " dequantised)",
                    said(done.notes, *caller.spelling), caller);
}

std::string end_of_line(const convert::ExportSummary& done) {
  std::string out = " in " + human_seconds(done.seconds) + " (" + counted(done.exact_tensors, "packed tensor") +
                    " with the same numbers";
  if (done.rounded_tensors > 0) out += ", " + std::to_string(done.rounded_tensors) + " with rounded scales";
  if (done.requantized_tensors > 0) out += ", " + std::to_string(done.requantized_tensors) + " quantised again";
  if (done.dequantized_tensors > 0) out += ", " + std::to_string(done.dequantized_tensors) + " dequantised";
  return out + ")";
}

Outcome to_packed(const ExportWords& words, const Caller& caller) {
  if (!words.type.empty())
    throw Error(ErrorCode::kInvalidArgument, Option::kType + " is for " + Option::kFormat + " gguf");
  convert::ExportOptions options{.format = words.format, .requantize = words.requantize, .overwrite = words.overwrite};
  if (!words.assume_original.empty()) options.assume_original = dtype_from_name(words.assume_original);
  attach(caller, options);
  const auto done = convert::export_checkpoint(words.checkpoint, words.destination, options);
  const ordered_json own = {{"exact_tensors", done.exact_tensors},
                            {"rounded_tensors", done.rounded_tensors},
                            {"requantized_tensors", done.requantized_tensors},
                            {"dequantized_tensors", done.dequantized_tensors},
                            {"rel_rmse", done.rel_rmse},
                            {"seconds", done.seconds}};
  return summary_of(words, done, own, end_of_line(done), said(done.notes, *caller.spelling), caller);
}

}  // namespace

std::vector<std::string> export_formats() {
  std::vector<std::string> out = convert::export_formats();
  out.insert(out.begin(), {"gguf", "safetensors"});
  return out;
}

std::vector<std::string> gguf_types() { return {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"}; }

Outcome export_as(const ExportWords& words, const Caller& caller) {
  if (words.format == "gguf") return to_gguf(words, caller);
  return words.format == "safetensors" ? to_safetensors(words, caller) : to_packed(words, caller);
}

}  // namespace halfbyte::cli

#include "tools/text/declare_model.h"

#include "models/architectures/model_config.h"
#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/habits.h"
#include "tools/cli/log.h"
#include "tools/cli/parse.h"
#include "tools/cli/policy.h"
#include "tools/cli/spelling.h"
#include "tools/cli/weighted_adapter.h"

namespace halfbyte::cli {
namespace {

// Meta has shapes and no values, so nothing can be run there.
Check device_name() {
  const auto check = [](std::string& value) -> std::string {
    try {
      if (Device::parse(value).kind() != Device::Kind::kMeta) return "";
      return "'meta' holds no values, so no model runs there";
    } catch (const Error& error) {
      return said(error) + hint(value, std::vector<std::string>{"auto", "cpu", "cuda", "xpu", "mps"});
    }
  };
  return {check, "auto|cpu|cuda[:N]|xpu[:N]|mps"};
}

}  // namespace

void declare_adapters(OptionParser& parser, std::vector<std::string>& words) {
  declare_adapters(parser, words,
                   "low-rank adapters beside the model's weights, as peft and finetune write them; repeatable");
}

void declare_device(OptionParser& parser, std::string& word, const std::string& help) {
  parser.add_option("--device", word, help).check(device_name()).show_default();
}

void declare_model(OptionParser& parser, ModelWords& words) {
  parser.add_checkpoint("CKPT", words.checkpoint, "model to run: a checkpoint directory, quantised or original")
      .required();
  parser
      .add_option("--dtype", words.dtype,
                  "dtype policy: automatic mixed precision, one dtype for everything, or as recorded")
      .check(policy_word())
      .show_default();
  parser.add_option("--keep-float32", words.keep_float32, "tensors that stay float32 whatever the policy; repeatable")
      .type_name("PATTERN")
      .repeatable();
  parser
      .add_option("--dtype-for", words.dtype_for,
                  "another policy for some modules or tensors; the last match wins; repeatable")
      .type_name("PATTERN=POLICY")
      .check(policy_assignment())
      .repeatable();
  declare_device(parser, words.device, "where to run it; auto: the best that is there");
  parser
      .add_option(
          "--compute", words.compute,
          "how packed integer codes are multiplied on the CPU: in floats, or with activations rounded to 8 bits; "
          "auto: the faster of them for 4-bit codes under amp, else floats")
      .check(one_of(compute_words()))
      .show_default();
  parser
      .add_option(
          "--kv", words.key_values,
          "keep keys and values in 8 bits, so that a long context takes about half; auto: as products take them")
      .check(one_of({"auto", "int8"}))
      .show_default();
  parser.add_flag("--verify", words.verify, "read everything first and compare it with the hashes on record");
  parser.add_option("--threads", words.threads, "0: one a core").check(whole_number(0, 4096)).show_default();
}

void log_report(const LoadReport& report) {
  log_info("device " + report.device + " (" + report.device_reason + ")");
  for (const LibraryVersion& library : report.versions)
    log_info(library.name + " " + library.running + ", built against " + library.built_against);
  const bool is_uniform = report.operand_dtype == report.stream_dtype;
  log_info("policy " + report.policy + ": " + (is_uniform ? "all" : "products") + " in " + report.operand_dtype +
           (is_uniform ? "" : ", the rest in " + report.stream_dtype) + ", packed codes times " + report.compute +
           "; " + human_bytes(report.bytes_with(Placement::kMapped)) + " mapped, " +
           human_bytes(report.bytes_with(Placement::kCast) + report.bytes_with(Placement::kCopied)) + " copied, " +
           human_bytes(report.bytes_with(Placement::kMoved)) + " moved");
  for (const std::string& note : report.notes) log_info(note);
  if (report.verified_tensors > 0) {
    log_info(counted(static_cast<std::int64_t>(report.verified_tensors), "tensor") +
             " compared with their hashes: equal");
  }
  for (const LoadedTensor& tensor : report.tensors) {
    const std::string recorded = tensor.recorded ? std::string(name(*tensor.recorded)) : "unknown";
    log_info(
        tensor.name + ": " + recorded + " -> " + tensor.loaded + ", " + name(tensor.placement) +
        (tensor.operand.empty() || tensor.operand == report.operand_dtype ? "" : ", multiplied in " + tensor.operand) +
        (tensor.note.empty() ? "" : " (" + tensor.note + ")"));
  }
}

void log_load(const ModelWords& words, const LoadReport& report, const models::ModelConfig& config) {
  log_report(report);
  if (config.is_text_part) log_warning("this model sees or hears too; it answers to text alone");
  if (const std::size_t unhashed = report.unhashed_tensors; unhashed > 0) {
    log_warning(words.checkpoint + ": --verify had nothing to compare " +
                counted(static_cast<std::int64_t>(unhashed), "tensor") +
                " with: only checkpoints that halfbyte wrote record hashes");
  }
}

}  // namespace halfbyte::cli

// Trains low-rank adapters of a checkpoint, quantised or not, on a text: QLoRA. What `halfbyte finetune` does, for host
// programs. Runs a model, but this header includes no LibTorch.
//
// Dtypes: products with the checkpoint's weights in bfloat16 (or as `dtype` says), whose gradients they give too;
// everything else, adapters, their products, their gradients and moments, norms, the residual stream and the loss, in
// float32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/dtype_policy.h>
#include <halfbyte/lora_options.h>
#include <halfbyte/text.h>

namespace halfbyte::convert {

enum class Schedule { kConstant, kLinear, kCosine };  // of the learning rate, after the warmup, down to 0

struct FinetuneOptions {
  LoraOptions lora = {};
  std::int64_t steps = 100;
  std::int64_t batch = 4;      // sequences a step; their gradients are added up
  std::int64_t context = 256;  // tokens of a sequence; fewer where the model takes fewer
  double learning_rate = 2e-4;
  Schedule schedule = Schedule::kCosine;
  std::int64_t warmup = 0;  // steps in which the learning rate grows to that
  double weight_decay = 0;
  double clip = 1;         // the gradients' norm, at most; 0: any
  std::uint64_t seed = 0;  // of the order of the sequences
  DtypePolicy dtype = DtypePolicy::amp(Dtype::kBfloat16);
  int threads = 0;  // 0: one a core
  bool overwrite = false;
  // Called after each step, from one thread.
  std::function<void(std::int64_t step, double loss)> on_step = {};
  std::stop_token stop = {};  // ends the training; what was learnt by then is written
};

struct FinetuneSummary {
  std::int64_t steps = 0;       // that were done
  std::int64_t parameters = 0;  // of the adapters
  std::int64_t sequences = 0;   // that the text has
  std::int64_t tokens = 0;      // that were scored in all steps
  std::vector<double> losses;   // mean of each step's tokens, before its update
  double seconds = 0;           // of the steps
  bool was_stopped = false;
  std::vector<Text> notes = {};
};

// Writes the adapters into `destination` as peft has them: adapter_config.json, adapter_model.safetensors. `text`: as
// read_calibration_text() takes it: a text, or token ids, conversations and texts as JSON lines. Given the same number
// of threads, machine and LibTorch the bytes are the same each time. Errors: as load_low_bit, read_calibration_text and
// Lora; kInvalidArgument for options out of range; kUnsupported for a model whose layers share keys; kAlreadyExists.
FinetuneSummary finetune(const std::filesystem::path& checkpoint, const std::filesystem::path& text,
                         const std::filesystem::path& destination, const FinetuneOptions& options = {});

}  // namespace halfbyte::convert

// Trains a checkpoint on a text: low-rank adapters beside its weights, quantised or not (LoRA, QLoRA), or all of its
// weights. What `halfbyte finetune` does, for host programs. Runs a model, but this header includes no LibTorch.
//
// Dtypes: operands of products in bfloat16 (or as `dtype` says), forward and backward; everything else in float32:
// adapters, masters of weights, their gradients and moments, norms, the residual stream, softmax and loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/device.h>
#include <halfbyte/dtype_policy.h>
#include <halfbyte/group.h>
#include <halfbyte/lora_options.h>
#include <halfbyte/text.h>

namespace halfbyte::convert {

enum class TrainingMethod { kAdapters, kFull };
enum class Schedule { kConstant, kLinear, kCosine };  // of the learning rate, after the warmup, down to 0
enum class TrainingOptimizer { kAdamW, kAdamW8bit, kSgd, kAdafactor };

// One update, as on_step is told of it.
struct FinetuneStep {
  std::int64_t step = 0;  // from 1 on
  std::int64_t steps = 0;
  double loss = 0;           // mean of the step's scored tokens, before the update; natural logarithms
  double rate = 0;           // learning rate
  double gradient_norm = 0;  // before it was clipped
  std::int64_t tokens = 0;   // that were scored
  double seconds = 0;
  std::vector<std::int64_t> sequences = {};  // of the text, from 0 on, that it learnt from
  std::optional<double> evaluation = {};     // mean loss of the evaluation's tokens after the update
};

struct FinetuneOptions {
  TrainingMethod method = TrainingMethod::kAdapters;
  LoraOptions lora = {};
  std::filesystem::path adapter = {};  // adapters to begin with, whose rank and scaling then hold; empty: new ones
  std::int64_t steps = 100;            // updates; 0: as many as `epochs` take
  double epochs = 0;                   // times that each sequence is learnt from
  std::int64_t batch = 4;              // sequences that are run together
  std::int64_t accumulate = 1;         // such batches whose gradients are added up for one update
  std::int64_t context = 256;          // tokens of a sequence; fewer where the model takes fewer
  bool packs = true;                   // several short documents make a sequence, in which none sees another
  bool is_json_lines = false;          // the text is, whatever it is called
  double learning_rate = 2e-4;
  Schedule schedule = Schedule::kCosine;
  std::int64_t warmup = 0;  // steps in which the learning rate grows to that
  TrainingOptimizer optimizer = TrainingOptimizer::kAdamW;
  double weight_decay = 0;
  double clip = 1;         // the gradients' norm, at most; 0: any
  std::uint64_t seed = 0;  // of the order of the sequences, of dropout, of rounding
  // Of kFull: `checkpoint` is a config.json, or a directory with one, beside a tokenizer. Weights are drawn by the seed
  // as `synth` draws them, and what is written is in the config's dtype.
  bool begins_anew = false;
  // Of kFull: the weights that training updates are bfloat16, rounded stochastically, in half the memory.
  bool has_bfloat16_masters = false;
  // Of kFull: passes see the matrices that quantize() would pack as they are after packing in this scheme, and their
  // gradients go to the weights as they are (straight through): weights that survive it. Empty: none.
  std::string fake_quantize = {};
  std::optional<std::int64_t> fake_group_size = {};  // nothing: the scheme's default
  bool recomputes = true;  // layers run a second time for their gradients: slower, in a fraction of the memory
  DtypePolicy dtype = DtypePolicy::amp(Dtype::kBfloat16);
  Device device = {};  // of passes, forward and back; masters, moments and updates are the CPU's

  std::filesystem::path evaluation = {};  // a text that is not learnt; empty: none
  std::int64_t evaluate_every = 0;        // steps; 0: at the end alone
  std::int64_t save_every = 100;          // steps after which what training goes on from is written; 0: when stopped
  std::int64_t keep = 2;                  // of those as many as stay meanwhile
  bool resume = false;                    // goes on from the last of them
  bool restart = false;                   // deletes them

  // Of ranks that train one model together (data parallelism): each has all of it, and calls this with the same texts
  // and options. They divide each step's sequences, and the texts of an evaluation. Rank 0 alone claims, reads and
  // writes DESTINATION and DESTINATION.partial, and gives the others what to go on from; of drawn weights all read what
  // lies there. A stop of any rank ends the step in all. Null: there is one process.
  std::shared_ptr<Group> group = {};
  int threads = 0;  // 0: one a core
  bool overwrite = false;
  // Called after each step, from one thread.
  std::function<void(const FinetuneStep& step)> on_step = {};
  std::stop_token stop = {};  // ends the training before the update at hand; what it goes on from is written
};

struct FinetuneSummary {
  std::int64_t steps = 0;       // that were done, those of earlier runs included
  std::int64_t resumed = 0;     // of them by earlier runs
  std::int64_t parameters = 0;  // that were trained
  std::int64_t sequences = 0;   // that the text has
  std::int64_t documents = 0;
  std::int64_t tokens = 0;                                   // that were scored in all steps of this run
  std::vector<double> losses;                                // of all steps
  std::vector<std::pair<std::int64_t, double>> evaluations;  // after which step, mean loss
  double seconds = 0;                                        // of this run's steps
  std::string device;                                        // "cuda:0"
  int ranks = 1, threads = 0;                                // that trained, and of each
  bool was_stopped = false;
  std::vector<Text> notes = {};
};

// Writes what was learnt into `destination`, which appears when it is whole: adapters as peft has them, or a plain
// checkpoint in the original dtypes. Meanwhile DESTINATION.partial holds what `resume` goes on from, to the same bits
// as without a break. Given the same number of threads, machine and LibTorch the bytes are the same each time. Errors:
// as load_low_bit; kInvalidArgument for options out of range, a text with nothing to learn, what cannot be trained, by
// name; kAlreadyExists; kContract for a loss that is no number. Of ranks also: kContract naming one that trains
// otherwise than rank 0; kUnsupported on other devices than the CPU; the group's.
FinetuneSummary finetune(const std::filesystem::path& checkpoint, const std::filesystem::path& text,
                         const std::filesystem::path& destination, const FinetuneOptions& options = {});

}  // namespace halfbyte::convert

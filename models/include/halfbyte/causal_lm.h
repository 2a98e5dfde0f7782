// A language model as a LibTorch module: what load_low_bit builds, for hosts that go below generate().
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <halfbyte/dtype_policy.h>
#include <halfbyte/generate.h>
#include <halfbyte/group.h>
#include <halfbyte/key_values.h>
#include <halfbyte/linear.h>

namespace halfbyte {
class Leading;
}

namespace halfbyte::models {

class Decoder;
class Follower;
class Leader;
class Linear;
class Pipeline;
class Session;
struct ModelConfig;
struct StepRow;
struct ModelWeights;
struct Violation;

class CausalLM : public torch::nn::Module {
 public:
  // `arithmetic`: of products with packed codes on the CPU, but for those whose own policy leaves activations in
  // float32. `group`: of ranks that have parts of the weights, as `config` says, and are in so many `stages` of layers;
  // null: the weights are whole. `rounds_sums`: what layers give is added by sum_rounded().
  CausalLM(const ModelConfig& config, const ModelWeights& weights, const DtypePolicy& policy,
           quant::Arithmetic arithmetic = quant::Arithmetic::kFloat, KeyValues key_values = KeyValues::kOperand,
           std::shared_ptr<Group> group = nullptr, int stages = 1, bool rounds_sums = false);
  ~CausalLM() override;

  // Logits of every position, float32. Shapes: token ids (rows, tokens), int64 -> (rows, tokens, vocab_size).
  // Errors: as hidden() and head().
  at::Tensor forward(const at::Tensor& tokens);

  // Holds InferenceMode itself. Threads: any number may generate from one model at once.
  // Errors: kInvalidArgument (empty prompt, a token id beyond the vocabulary, a prompt longer than the context, options
  // out of range); kContract; kCorrupt.
  std::vector<Generation> generate(const std::vector<TokenIds>& prompts, const GenerateOptions& options = {}) const;

  const ModelConfig& config() const noexcept { return *config_; }
  const DtypePolicy& policy() const noexcept { return policy_; }
  at::Device device() const;
  // Everything below the head, for who runs its layers one by one.
  const Decoder& decoder() const noexcept { return *model_; }
  const Linear& lm_head() const noexcept { return *lm_head_; }

  // Lower level: the step that everything above takes. A session is one sequence.
  Session make_session() const;
  std::vector<Session> make_sessions(std::int64_t count) const;
  // Token ids of all rows one after another, appended to the rows' sessions, which are different ones. Shapes: (tokens)
  // -> (tokens, hidden_size), which count in the last stage of layers alone: head() takes them from there. Errors:
  // kInvalidArgument for a session twice or ids that are not the rows'; kContract naming the first module in which an
  // activation left the range of its dtype, kCorrupt naming a weight that is not finite; the sessions are as before.
  at::Tensor step(const at::Tensor& tokens, std::span<const StepRow> rows) const;
  // The same with equally many tokens a row. Shapes: (rows, tokens) -> (rows, tokens, hidden_size).
  at::Tensor hidden(const at::Tensor& tokens, std::span<Session> sessions) const;
  at::Tensor hidden(const at::Tensor& tokens, Session& session) const;
  // Shape: (..., hidden_size) -> (..., vocab_size), float32. Errors: as hidden().
  at::Tensor head(const at::Tensor& hidden) const;
  // What step() gave, or rows of it, as it is in the last stage of layers, where this rank leads
  // (<halfbyte/leading.h>). Shape: kept, (.., hidden_size).
  at::Tensor states(const at::Tensor& hidden) const;
  int stages() const noexcept;  // of layers, which ranks are in; 1: this rank has all layers
  // Of ranks that call everything alike; null: it is whole, or led.
  Group* group_in_step() const noexcept;

  // Walks the modules: every operator's operands agree in dtype and device. Errors: kContract naming the first module
  // that breaks it, the tensor, its dtype, the wanted one and the cure.
  void check_contract() const;

 private:
  friend class Leader;
  friend class Follower;
  friend class ::halfbyte::Leading;
  struct Verdict;

  void check_step(const at::Tensor& tokens, std::span<const StepRow> rows) const;
  at::Tensor of_all_ranks(const at::Tensor& products) const;
  // `verdict`: where what is not finite is noted instead of thrown; null: it is thrown.
  at::Tensor pass(const at::Tensor& tokens, std::span<const StepRow> rows, Verdict* verdict) const;
  at::Tensor pass_in_parts(const at::Tensor& tokens, std::span<const StepRow> rows, Verdict* verdict) const;
  // What leading and following ranks do of a step, all or none of them; undefined: none.
  at::Tensor agreed_step(const at::Tensor& tokens, std::span<const StepRow> rows) const;
  at::Tensor of_last_stage(const at::Tensor& hidden) const;
  at::Tensor head_products(const at::Tensor& x) const;
  at::Tensor checked_logits(const at::Tensor& x, at::Tensor products) const;
  at::Tensor own_head(const at::Tensor& hidden) const;
  [[noreturn]] void refuse_values() const;

  std::unique_ptr<const ModelConfig> config_;
  DtypePolicy policy_;
  std::unique_ptr<const Pipeline> pipeline_;  // null: all layers are here
  std::unique_ptr<const Decoder> model_;
  std::shared_ptr<Linear> lm_head_;
  mutable std::unique_ptr<Leader> leader_;  // null: no rank follows this one
};

}  // namespace halfbyte::models

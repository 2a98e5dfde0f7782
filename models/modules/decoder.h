// The layers of a decoder-only transformer, and the stack of them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/modules/attention.h"
#include "models/modules/embedding.h"
#include "models/modules/layer_inputs.h"
#include "models/modules/mlp.h"
#include "models/modules/norm.h"
#include "models/modules/rotary.h"

namespace halfbyte::models {

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(const LayerWeights& weights, const ModelConfig& config, const Compute& compute, std::int64_t index);
  // Errors: kUnsupported for a pass that lacks what layers are given beside the stream.
  at::Tensor forward(const at::Tensor& input, const Pass& pass) const;

  // What comes after mixing tokens and the MLP or experts. Shape: (rows, tokens, hidden_size), kept. Errors: as
  // forward().
  at::Tensor completed(const at::Tensor& x, const Pass& pass) const;

  const Mixer& mixer() const noexcept { return *mixer_; }
  const Attention* attention() const noexcept { return attention_; }  // null: another mixer
  bool is_parallel() const noexcept { return is_parallel_; }
  bool is_residual_normalised() const noexcept { return is_residual_normalised_; }
  double residual_scale() const noexcept { return residual_scale_; }
  // What adds up the parts that ranks have of it; null: it is whole here, or does so by itself.
  Group* attention_group() const noexcept { return attention_group_.get(); }
  Group* mlp_group() const noexcept { return mlp_group_.get(); }
  const Norm* input_norm() const noexcept { return input_norm_.get(); }
  const Norm* attention_output_norm() const noexcept { return attention_output_norm_.get(); }
  const Norm* mlp_norm() const noexcept { return mlp_norm_.get(); }
  const Norm* mlp_output_norm() const noexcept { return mlp_output_norm_.get(); }
  const FeedForward& feed_forward() const noexcept { return *feed_forward_; }
  // Whether there is more to it than mixing tokens and an MLP or experts.
  bool has_more() const noexcept { return layer_input_ || scale_.defined(); }

 private:
  void add_feed_forward(const LayerWeights& weights, const ModelConfig& config, const Compute& compute,
                        const LayerConfig& layer);

  bool is_parallel_;
  bool is_residual_normalised_;
  double residual_scale_;
  std::shared_ptr<Group> attention_group_, mlp_group_;
  std::shared_ptr<Norm> input_norm_, attention_output_norm_, mlp_norm_, mlp_output_norm_;  // null: none
  std::shared_ptr<Mixer> mixer_;
  const Attention* attention_;
  std::shared_ptr<FeedForward> feed_forward_;
  std::shared_ptr<LayerInput> layer_input_;  // null: none
  at::Tensor scale_;                         // (1); undefined: none
};

namespace cpu {
class Workspaces;
}

// Embedding, layers, final norm: everything below the head, or a stage of it. It registers them where the checkpoint
// has them, below `root`.
class Decoder {
 public:
  Decoder(torch::nn::Module& root, const ModelWeights& weights, const ModelConfig& config, const Compute& compute);
  ~Decoder();

  // One step of several sequences. What it leaves in their sessions waits for commit(). On the CPU, without gradients,
  // by models/cpu; elsewhere, and where that declines, module by module. Shapes: the rows' tokens one after another
  // (tokens) -> (tokens, hidden_size), normalised. `input`: what the layer before the first here gave, of the same
  // shape and not normalised; undefined: this one begins with the embedding.
  at::Tensor forward(const at::Tensor& tokens, std::span<const StepRow> rows, const at::Tensor& input = {}) const;
  Session make_session(at::Device device) const;
  // For who runs layers one by one: what the first is given, and what each is given beside its input. Shapes: tokens
  // (rows, tokens), stream (rows, tokens, hidden_size). Errors: as forward().
  struct Begun {
    at::Tensor stream;
    Pass pass;
  };
  Begun begin(const at::Tensor& tokens, std::vector<Session*> sessions, const at::Tensor& input = {}) const;
  // What modules of a layer are given beside their input, but for `layer_inputs`.
  Pass make_pass(std::vector<Session*> sessions, std::int64_t tokens, at::Device device) const;

  const Compute& compute() const noexcept { return compute_; }
  const std::string& path() const noexcept { return path_; }
  // Precondition: has_embedding(), which a later stage's need not be.
  const Embedding& embedding() const noexcept { return *embedding_; }
  bool has_embedding() const noexcept { return embedding_ != nullptr; }
  std::int64_t hidden_size() const noexcept { return hidden_size_; }
  // From first_layer() on.
  std::span<const std::shared_ptr<DecoderLayer>> layers() const noexcept { return layers_; }
  std::int64_t first_layer() const noexcept { return first_layer_; }
  // Errors: kUnsupported where other ranks have some.
  void check_all_layers() const;
  const Norm* norm() const noexcept { return norm_.get(); }
  // Whether layers are given something of the tokens beside what the one before gives.
  bool has_layer_inputs() const noexcept { return layer_inputs_ != nullptr; }
  // Buffers of models/cpu, for all threads that run the model.
  cpu::Workspaces& workspaces() const noexcept { return *workspaces_; }

 private:
  at::Tensor by_modules(const at::Tensor& tokens, std::vector<Session*> sessions, const at::Tensor& input) const;

  Compute compute_;
  std::string path_;            // of the layers
  std::vector<Reach> reaches_;  // of the layers, each once
  std::int64_t hidden_size_;
  std::int64_t all_layers_, first_layer_;
  std::shared_ptr<Embedding> embedding_;       // null: an earlier stage has it
  Session::Ropes ropes_;                       // Rotary modules
  std::shared_ptr<LayerInputs> layer_inputs_;  // null: none
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::vector<std::unique_ptr<const LayerState>> absent_;  // of each layer that another stage has; null: nothing
  std::shared_ptr<Norm> norm_;                             // null: none
  std::unique_ptr<cpu::Workspaces> workspaces_;
};

// Rows of a step, one after another, of equally many tokens.
struct EqualRows {
  std::size_t begin, end;
  std::int64_t first, tokens;  // of the step's tokens the first, and those of each row
};
std::vector<EqualRows> equal_rows(std::span<const StepRow> rows);
std::vector<Session*> sessions_of(std::span<const StepRow> rows, const EqualRows& part);

}  // namespace halfbyte::models

#include "models/modules/short_convolution.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "models/modules/children.h"
#include "models/modules/module_path.h"
#include "models/modules/overflow.h"

namespace halfbyte::models {

ConvolutionState::ConvolutionState(std::int64_t batch, std::int64_t tokens, std::int64_t size, at::Device device)
    : kept_(at::zeros({batch, tokens, size}, at::TensorOptions().dtype(at::kFloat).device(device))),
      fresh_(at::zeros_like(kept_)) {}

void ConvolutionState::keep(std::int64_t first_row, const at::Tensor& last) {
  fresh_.narrow(0, first_row, last.size(0)).copy_(last);
}

void ConvolutionState::commit(std::int64_t row, std::int64_t) { kept_.select(0, row).copy_(fresh_.select(0, row)); }
void ConvolutionState::reset(std::int64_t row) { kept_.select(0, row).zero_(); }
std::vector<at::Tensor> ConvolutionState::save(std::int64_t row) const { return {kept_.select(0, row).clone()}; }

void ConvolutionState::restore(std::int64_t row, const std::vector<at::Tensor>& saved) {
  kept_.select(0, row).copy_(saved.at(0));
}

ShortConvolution::ShortConvolution(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                   std::int64_t layer)
    : compute_(compute), layer_(layer) {
  constexpr ModuleName kInput[] = {&Naming::convolution_input};
  constexpr ModuleName kOutput[] = {&Naming::convolution_output};
  const std::string path(config.naming->convolution_kernel);
  inputs_ = add_linears(*this, weights, kInput, *config.naming, compute);
  kernel_ = register_parameter_at(*this, path + ".weight", weights.parameter(&Naming::convolution_kernel).value());
  if (const at::Tensor bias = weights.bias(&Naming::convolution_kernel); bias.defined())
    bias_ = register_parameter_at(*this, path + ".bias", bias);
  output_ = add_linears(*this, weights, kOutput, *config.naming, compute).at(0);
}

at::Tensor ShortConvolution::convolved(const at::Tensor& x, std::int64_t tokens) const {
  const at::Tensor kernel = kernel_.select(1, 0).to(at::kFloat);
  at::Tensor out = x.narrow(1, 0, tokens) * kernel.select(1, 0);
  for (std::int64_t i = 1; i < kernel.size(1); ++i) out = out + x.narrow(1, i, tokens) * kernel.select(1, i);
  return bias_.defined() ? out + bias_.to(at::kFloat) : out;
}

at::Tensor ShortConvolution::forward(const at::Tensor& input, Session& session, const Pass& pass) const {
  const auto parts = inputs_[0]->forward(shared_operand(input, inputs_)).chunk(3, -1);
  auto& state = session.state<ConvolutionState>(layer_);
  const at::Tensor gated = (parts[0] * parts[2]).to(at::kFloat);
  const at::Tensor x = at::cat({state.before(pass.first_row, pass.rows), gated}, 1);
  state.keep(pass.first_row, x.narrow(1, pass.tokens, x.size(1) - pass.tokens));
  const at::Tensor mixed = convolved(x, pass.tokens).to(parts[1].scalar_type());
  return output_->forward(watched_input(*output_, parts[1] * mixed));
}

std::unique_ptr<LayerState> ShortConvolution::make_state(std::int64_t batch, std::int64_t, at::Device device) const {
  return std::make_unique<ConvolutionState>(batch, kernel_.size(2) - 1, kernel_.size(0), device);
}

}  // namespace halfbyte::models

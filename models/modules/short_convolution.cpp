#include "models/modules/short_convolution.h"

#include "models/modules/children.h"
#include "models/modules/overflow.h"

namespace halfbyte::models {
namespace {

constexpr ModuleName kInput[] = {&Naming::convolution_input};
constexpr ModuleName kConvolutionOutput[] = {&Naming::convolution_output};

}  // namespace

ShortConvolution::ShortConvolution(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                   std::int64_t layer)
    : layer_(layer),
      inputs_(add_linears(*this, weights, kInput, *config.naming, compute)),
      convolution_(*this, weights, &Naming::convolution_kernel, *config.naming),
      output_(add_linears(*this, weights, kConvolutionOutput, *config.naming, compute).at(0)) {}

at::Tensor ShortConvolution::forward(const at::Tensor& input, const Pass& pass) const {
  const auto parts = inputs_[0]->forward(shared_operand(input, inputs_)).chunk(3, -1);
  const auto [mixed, after] = convolution_.forward(parts[0] * parts[2], states_before(pass, layer_, 0));
  keep_states(pass, layer_, 0, after);
  return output_->forward(watched_input(*output_, parts[1] * mixed.to(parts[1].scalar_type())));
}

std::unique_ptr<LayerState> ShortConvolution::make_state(at::Device device) const {
  const std::vector<RecurrentState::Shape> parts = {convolution_.kept()};
  return std::make_unique<RecurrentState>(parts, device);
}

}  // namespace halfbyte::models

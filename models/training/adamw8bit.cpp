#include <algorithm>

#include "models/training/adamw.h"
#include "models/training/adamw8bit_block.h"
#include "models/training/dynamic_codes.h"
#include "quant/thread_pool.h"

namespace halfbyte::training {
namespace {

constexpr std::int64_t kLeastCoded = 4096;  // elements of a parameter whose moments are codes
constexpr std::int64_t kBlock = kCodesPerScale;
constexpr std::int64_t kBlocksPerTurn = 64;  // that a thread does before it takes more

bool is_small(const at::Tensor& parameter) { return parameter.numel() < kLeastCoded; }

std::int64_t blocks_of(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }

struct Turn {
  const Piece* piece;
  std::int64_t first_block;  // of the piece
};

// Source: Dettmers et al. 2021, "8-bit Optimizers via Block-wise Quantization".
class AdamW8bit : public UpdateRule {
 public:
  AdamW8bit(const std::vector<NamedTensor>& parameters, const OptimizerOptions& options)
      : options_(options),
        parameters_(parameters),
        small_(parameters, kept(parameters, [](const at::Tensor& one) { return is_small(one) ? one.numel() : 0; }),
               options),
        first_(kept(parameters, codes_of), at::kChar),
        second_(kept(parameters, codes_of), at::kByte),
        first_scales_(kept(parameters, scales_of), at::kFloat),
        second_scales_(kept(parameters, scales_of), at::kFloat) {}

  void update(std::span<const Piece> pieces, double rate) override {
    std::vector<Piece> small;
    std::vector<Turn> turns;
    for (const Piece& piece : pieces) {
      if (is_small(parameters_[piece.parameter].tensor)) {
        small.push_back(piece);
        continue;
      }
      for (std::int64_t at = 0; at < blocks_of(piece.value.numel()); at += kBlocksPerTurn)
        turns.push_back({&piece, at});
    }
    if (!small.empty()) small_.update(small, rate);
    const quant::AmongOpenMp among_openmp;
    quant::for_each_piece(static_cast<std::int64_t>(turns.size()), /*is_worth_threads=*/true,
                          [&](std::int64_t i) { update(turns[static_cast<std::size_t>(i)], rate); });
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> out = small_.state();
    first_.append_to(out, parameters_, "exp_avg.codes");
    first_scales_.append_to(out, parameters_, "exp_avg.scales");
    second_.append_to(out, parameters_, "exp_avg_sq.codes");
    second_scales_.append_to(out, parameters_, "exp_avg_sq.scales");
    return out;
  }

 private:
  static std::vector<std::vector<std::int64_t>> kept(const std::vector<NamedTensor>& parameters,
                                                     std::int64_t (*elements)(const at::Tensor&)) {
    std::vector<std::vector<std::int64_t>> out;
    for (const NamedTensor& one : parameters) {
      const std::int64_t count = elements(one.tensor);
      out.push_back(count == one.tensor.numel() ? one.tensor.sizes().vec() : std::vector{count});
    }
    return out;
  }
  static std::int64_t codes_of(const at::Tensor& one) { return is_small(one) ? 0 : one.numel(); }
  static std::int64_t scales_of(const at::Tensor& one) { return blocks_of(codes_of(one)); }

  void update(const Turn& turn, double rate) const {
    const Piece& piece = *turn.piece;
    const AdamWFactors factors =
        adamw_factors(rate, options_.beta1, options_.beta2, options_.epsilon, options_.weight_decay, piece.step);
    const std::int64_t elements = piece.value.numel();
    const std::int64_t end = std::min(turn.first_block + kBlocksPerTurn, blocks_of(elements));
    const std::size_t parameter = piece.parameter;
    for (std::int64_t block = turn.first_block; block < end; ++block) {
      const std::int64_t at = block * kBlock, in_parameter = piece.offset + at;
      const MomentCodes codes{
          .first = first_.whole(parameter).mutable_data_ptr<std::int8_t>() + in_parameter,
          .second = second_.whole(parameter).mutable_data_ptr<std::uint8_t>() + in_parameter,
          .first_scale = first_scales_.whole(parameter).mutable_data_ptr<float>() + in_parameter / kBlock,
          .second_scale = second_scales_.whole(parameter).mutable_data_ptr<float>() + in_parameter / kBlock};
      update_block(factors, static_cast<std::size_t>(std::min(kBlock, elements - at)),
                   piece.value.mutable_data_ptr<float>() + at, piece.gradient.const_data_ptr<float>() + at, codes);
    }
  }

  OptimizerOptions options_;
  std::vector<NamedTensor> parameters_;
  AdamW small_;
  FlatBuffer first_, second_, first_scales_, second_scales_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw8bit(const std::vector<NamedTensor>& parameters,
                                           const OptimizerOptions& options) {
  return std::make_unique<AdamW8bit>(parameters, options);
}

}  // namespace halfbyte::training

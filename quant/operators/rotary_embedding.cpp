// Rotary embedding as transformers computes it: both products are rounded to the operands' dtype before they are added.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/weight_matrix.h"
#include "quant/thread_pool.h"

namespace halfbyte::operators {
namespace {

constexpr const char* kRotaryEmbedding = "rotary_embedding";

std::string shape_of_named(const char* name, const at::Tensor& tensor) {
  return std::string(name) + " has shape " + c10::str(tensor.sizes());
}

void check_heads_turned(const char* name, const at::Tensor& heads, const at::Tensor& cosine) {
  const bool fits = heads.dim() == 4 && heads.size(2) == cosine.size(1) && heads.size(3) >= cosine.size(2) &&
                    (cosine.size(0) == 1 || cosine.size(0) == heads.size(0));
  if (!fits)
    refuse(kRotaryEmbedding, shape_of_named(name, heads) + ", which does not fit cosine's " + c10::str(cosine.sizes()));
}

// Errors: naming the operand.
void check_turn(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine, const at::Tensor& sine) {
  if (cosine.dim() != 3 || cosine.size(2) < 2 || cosine.size(2) % 2 != 0)
    refuse(kRotaryEmbedding, shape_of_named("cosine", cosine) +
                                 ", not (batch or 1, tokens, turned) with an even number of turned values");
  if (sine.sizes() != cosine.sizes())
    refuse(kRotaryEmbedding, shape_of_named("sine", sine) + ", not that of cosine, " + c10::str(cosine.sizes()));
  check_heads_turned("query", query, cosine);
  check_heads_turned("key", key, cosine);
  check_floating(kRotaryEmbedding, "query", query);
  for (const auto& [name, tensor] : {std::pair("key", &key), std::pair("cosine", &cosine), std::pair("sine", &sine)}) {
    check_floating(kRotaryEmbedding, name, *tensor);
    check_same_device(kRotaryEmbedding, name, *tensor, "query", query);
    if (tensor->scalar_type() != query.scalar_type())
      throw Error(ErrorCode::kContract, "halfbyte::" + std::string(kRotaryEmbedding) + ": " + name + " is " +
                                            c10::toString(tensor->scalar_type()) + ", query " +
                                            c10::toString(query.scalar_type()) + "; cast one of them");
  }
}

// The heads of one token at a time.
class HeadTurn {
 public:
  HeadTurn(const at::Tensor& cosine, const at::Tensor& sine)
      : dtype_(check_floating(kRotaryEmbedding, "cosine", cosine)),
        bytes_(size_bytes(dtype_)),
        turned_(cosine.size(2)),
        tokens_(cosine.size(1)),
        cosines_(floats_of(cosine)),
        sines_(floats_of(sine)) {}

  // `heads`: whose last dimension has no gaps; `out`: rows of (tokens, heads, head_dim).
  void run(const at::Tensor& heads, const at::Tensor& out) const {
    const std::int64_t count = heads.size(0) * tokens_;
    const bool is_worth_threads = heads.numel() > kParallelValues;
    quant::for_each_piece(count, is_worth_threads, [&](std::int64_t index) {
      const std::int64_t row = index / tokens_, token = index % tokens_;
      const std::int64_t first = row * heads.stride(0) + token * heads.stride(2);
      turn({heads.size(1), heads.size(3), heads.stride(1)}, bytes_of(heads) + first * bytes_, place(row, token),
           static_cast<std::byte*>(out.mutable_data_ptr()) + index * heads.size(1) * heads.size(3) * bytes_);
    });
  }

 private:
  // Values below this many are not worth waking other threads.
  static constexpr std::int64_t kParallelValues = 16 << 10;

  std::vector<float> floats_of(const at::Tensor& table) const {
    const at::Tensor values = table.contiguous();
    std::vector<float> out(static_cast<std::size_t>(values.numel()));
    quant::convert(bytes_of(values), dtype_, reinterpret_cast<std::byte*>(out.data()), Dtype::kFloat32, values.numel());
    return out;
  }

  std::int64_t place(std::int64_t row, std::int64_t token) const {
    const bool has_rows = static_cast<std::int64_t>(cosines_.size()) > tokens_ * turned_;
    return ((has_rows ? row : 0) * tokens_ + token) * turned_;
  }

  struct Heads {
    std::int64_t count, size, stride;
  };
  void turn(const Heads& heads, const std::byte* x, std::int64_t place, std::byte* out) const {
    static thread_local std::vector<float> values, straight, crossed;
    static thread_local std::vector<std::byte> rounded;
    const auto count = static_cast<std::size_t>(heads.count * heads.size);
    for (std::vector<float>* each : {&values, &straight, &crossed}) each->resize(std::max(each->size(), count));
    rounded.resize(std::max(rounded.size(), count * static_cast<std::size_t>(bytes_)));
    // Heads that lie one behind another are one run.
    const std::int64_t runs = heads.stride == heads.size ? 1 : heads.count, length = heads.count * heads.size / runs;
    for (std::int64_t i = 0; i < runs; ++i) {
      quant::convert(x + i * heads.stride * bytes_, dtype_, reinterpret_cast<std::byte*>(values.data() + i * length),
                     Dtype::kFloat32, length);
    }
    for (std::int64_t head = 0, first = 0; head < heads.count; ++head, first += heads.size)
      multiply(values.data() + first, heads.size, place, straight.data() + first, crossed.data() + first);
    round(straight, rounded, heads.count * heads.size);
    round(crossed, rounded, heads.count * heads.size);
    for (std::size_t i = 0; i < count; ++i) straight[i] += crossed[i];
    quant::convert(reinterpret_cast<const std::byte*>(straight.data()), Dtype::kFloat32, out, dtype_,
                   heads.count * heads.size);
  }

  // What stands behind the turned values stays: -0 is added to it.
  void multiply(const float* x, std::int64_t size, std::int64_t place, float* straight, float* crossed) const {
    const float *cosine = cosines_.data() + place, *sine = sines_.data() + place;
    const std::int64_t half = turned_ / 2;
    for (std::int64_t i = 0; i < turned_; ++i) straight[i] = x[i] * cosine[i];
    for (std::int64_t i = 0; i < half; ++i) crossed[i] = -x[half + i] * sine[i];
    for (std::int64_t i = 0; i < half; ++i) crossed[half + i] = x[i] * sine[half + i];
    std::copy(x + turned_, x + size, straight + turned_);
    std::fill(crossed + turned_, crossed + size, -0.0f);
  }

  void round(std::vector<float>& values, std::vector<std::byte>& scratch, std::int64_t count) const {
    if (dtype_ == Dtype::kFloat32) return;
    auto* const floats = reinterpret_cast<std::byte*>(values.data());
    quant::convert(floats, Dtype::kFloat32, scratch.data(), dtype_, count);
    quant::convert(scratch.data(), dtype_, floats, Dtype::kFloat32, count);
  }

  Dtype dtype_;
  std::int64_t bytes_, turned_, tokens_;
  std::vector<float> cosines_, sines_;
};

at::Tensor turned_heads(const HeadTurn& turn, const at::Tensor& heads) {
  const at::Tensor x = heads.stride(3) == 1 ? heads : heads.contiguous();
  const at::Tensor out = at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options());
  if (x.numel() > 0) turn.run(x, out);
  return out.transpose(1, 2);
}

at::Tensor composed_turn(const at::Tensor& heads, const at::Tensor& cosine, const at::Tensor& sine) {
  const std::int64_t size = cosine.size(2);
  const at::Tensor x = heads.narrow(3, 0, size), first = x.narrow(3, 0, size / 2),
                   second = x.narrow(3, size / 2, size / 2);
  const at::Tensor crossed = at::cat({second.neg(), first}, -1);
  const at::Tensor out = x.mul(cosine.unsqueeze(1)).add(crossed.mul(sine.unsqueeze(1)));
  const at::Tensor whole =
      size == heads.size(3) ? out : at::cat({out, heads.narrow(3, size, heads.size(3) - size)}, -1);
  return whole.transpose(1, 2).contiguous().transpose(1, 2);
}

}  // namespace

Turned cpu::rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                             const at::Tensor& sine) {
  check_turn(query, key, cosine, sine);
  const quant::AmongOpenMp among_openmp;
  const HeadTurn turn(cosine, sine);
  return {turned_heads(turn, query), turned_heads(turn, key)};
}

Turned composite::rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                                   const at::Tensor& sine) {
  check_turn(query, key, cosine, sine);
  return {composed_turn(query, cosine, sine), composed_turn(key, cosine, sine)};
}

// Where a gradient is wanted, the composite, which has one.
Turned autograd::rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                                  const at::Tensor& sine) {
  const bool wants = query.requires_grad() || key.requires_grad() || cosine.requires_grad() || sine.requires_grad();
  if (wants && at::GradMode::is_enabled()) return composite::rotary_embedding(query, key, cosine, sine);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return operators::rotary_embedding(query, key, cosine, sine);
}

}  // namespace halfbyte::operators

#include "models/cpu/expert_pieces.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>

#include "models/cpu/costs.h"
#include "models/cpu/gates.h"
#include "models/sessions/pass_watch.h"
#include "quant/gated_linear.h"
#include "quant/linear_way.h"
#include "quant/rows_alike.h"
#include "quant/thread_pool.h"

namespace halfbyte::models::cpu {
namespace {

// Rows of an expert on average below which products of all experts together are faster.
constexpr std::int64_t kLeastAverage = 16;
// Rows of a piece that is not all of its expert. From the least on a product's way does not depend on how many there
// are, so that results do not depend on how many threads there are; and unpacking matrices for each piece hardly shows.
constexpr std::int64_t kLeastRows = 32, kMostRows = 128;
// What is between a piece's products: it should stay in a second-level cache.
constexpr std::int64_t kBytesBetween = 512 << 10;
// Pieces that a thread should have, lest others wait for the last one; and that it has at least from one look at the
// watch to the next: each has less than 2^30 multiplications.
constexpr std::int64_t kPiecesPerThread = 4;

std::int64_t between_bytes(const ExpertRows& experts) {
  const quant::Product& down = experts.downs.front();
  std::int64_t bytes = down.weight.in_features * size_bytes(down.arguments.input_dtype);
  for (const quant::Product& input : experts.inputs.first(experts.inputs_each()))
    bytes += input.weight.out_features * size_bytes(Dtype::kFloat32);
  return bytes;
}

// 0: pieces are not worth it.
std::int64_t rows_at_once(const ExpertRows& experts) {
  std::int64_t rows = 0;
  for (const quant::Product& down : experts.downs) rows += down.arguments.rows;
  const std::int64_t bytes = between_bytes(experts);
  if (rows < kLeastAverage * static_cast<std::int64_t>(experts.downs.size()) || bytes == 0) return 0;
  const std::int64_t most = std::min(kMostRows, kBytesBetween / bytes);
  return most < kLeastRows ? 0 : std::clamp(rows / (kPiecesPerThread * quant::max_threads()), kLeastRows, most);
}

class Pieces {
 public:
  Pieces(const ExpertRows& experts, ExpertPiecesWork& work) : experts_(experts), work_(work) {}

  // The largest come first, so that threads end together.
  bool cut() {
    const std::int64_t most = rows_at_once(experts_);
    if (most == 0) return false;
    work_.pieces.clear();
    for (std::size_t expert = 0; expert < experts_.downs.size(); ++expert) {
      const std::int64_t rows = experts_.downs[expert].arguments.rows;
      const std::int64_t count = std::clamp<std::int64_t>(rows / kLeastRows, 1, (rows + most - 1) / most);
      for (std::int64_t i = 0; i < count; ++i)
        work_.pieces.push_back({expert, rows * i / count, rows * (i + 1) / count});
    }
    if (!keep_threads_busy()) return false;
    std::ranges::sort(work_.pieces, {}, [](const ExpertPiece& p) { return std::tuple(-p.rows(), p.expert, p.begin); });
    return std::ranges::all_of(work_.pieces, [&](const ExpertPiece& piece) {
      const Inputs inputs = inputs_of(piece);
      return std::ranges::all_of(std::span(inputs).first(experts_.inputs_each()), quant::is_by_own_kernels) &&
             quant::is_by_own_kernels(down_of(piece));
    });
  }

  void run() {
    work_.threads.resize(static_cast<std::size_t>(quant::max_threads()));
    const WorkScope scope(WorkKind::kExperts, [&] {
      const WorkCost inputs = cost_of(experts_.inputs), downs = cost_of(experts_.downs);
      return WorkCost{inputs.bytes + downs.bytes, inputs.flop + downs.flop};
    });
    const std::int64_t most = PassWatch::products_between_looks();
    const auto least = static_cast<std::size_t>(kPiecesPerThread * quant::max_threads());
    for (std::size_t begin = 0, end; begin < work_.pieces.size(); begin = end) {
      PassWatch::check();
      std::int64_t products = 0;
      for (end = begin; end < work_.pieces.size(); ++end) {
        products += products_of(work_.pieces[end]);
        if (end >= begin + least && products > most) break;
      }
      run(std::span(work_.pieces).subspan(begin, end - begin));
    }
  }

 private:
  // Else the others would wait for those that have the largest pieces.
  bool keep_threads_busy() const {
    std::int64_t rows = 0, largest = 0;
    for (const ExpertPiece& piece : work_.pieces) {
      rows += piece.rows();
      largest = std::max(largest, piece.rows());
    }
    const std::int64_t threads = quant::max_threads();
    return threads == 1 || 2 * threads * largest <= rows;
  }

  using Inputs = std::array<quant::Product, 2>;

  static quant::Product rows_of(quant::Product product, const ExpertPiece& piece) {
    quant::LinearArguments& a = product.arguments;
    a.rows = piece.rows();
    if (a.input_rows)
      a.input_rows += piece.begin;
    else if (a.input)
      a.input += piece.begin * product.weight.in_features * size_bytes(a.input_dtype);
    if (a.output) a.output += piece.begin * product.weight.out_features * size_bytes(a.output_dtype);
    return product;
  }

  Inputs inputs_of(const ExpertPiece& piece) const {
    Inputs out;
    for (std::size_t i = 0; i < experts_.inputs_each(); ++i)
      out[i] = rows_of(experts_.inputs[piece.expert * experts_.inputs_each() + i], piece);
    return out;
  }

  quant::Product down_of(const ExpertPiece& piece) const { return rows_of(experts_.downs[piece.expert], piece); }

  std::int64_t products_of(const ExpertPiece& piece) const {
    const quant::WeightMatrix& down = experts_.downs[piece.expert].weight;
    return 3 * piece.rows() * down.in_features * down.out_features;
  }

  void run(std::span<const ExpertPiece> pieces) {
    std::atomic<std::size_t> next = 0;
    const quant::RowsKind kind = quant::RowsAlike::kind();
    quant::run_together(quant::max_threads(), [&](std::size_t thread) {
      const quant::RowsAlike alike(kind);
      for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < pieces.size();)
        run(pieces[i], work_.threads[thread]);
    });
  }

  void run(const ExpertPiece& piece, BetweenProducts& own) const {
    quant::Product down = down_of(piece);
    down.arguments.input =
        gate_up(piece, {experts_.activation, piece.rows(), down.weight.in_features, down.arguments.input_dtype}, own);
    quant::linear(std::span(&down, 1));
  }

  const std::byte* gate_up(const ExpertPiece& piece, const Gated& what, BetweenProducts& own) const {
    Inputs all = inputs_of(piece);
    const std::span<quant::Product> inputs = std::span(all).first(experts_.inputs_each());
    std::byte* const out =
        own.between.at_least(static_cast<std::size_t>(what.rows * what.size * size_bytes(what.dtype)));
    if (quant::linear_gated({inputs, gate_of(what.activation), out, what.dtype})) return out;
    Buffer* const outputs[] = {&own.first, &own.second};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      inputs[i].arguments.output =
          reinterpret_cast<std::byte*>(outputs[i]->floats(what.rows * inputs[i].weight.out_features));
    quant::linear(inputs);
    return gated(what, own.first.floats(0), inputs.size() == 1 ? nullptr : own.second.floats(0), own.between);
  }

  const ExpertRows& experts_;
  ExpertPiecesWork& work_;
};

}  // namespace

bool multiply_by_pieces(const ExpertRows& experts, ExpertPiecesWork& work) {
  Pieces pieces(experts, work);
  if (!pieces.cut()) return false;
  pieces.run();
  return true;
}

}  // namespace halfbyte::models::cpu

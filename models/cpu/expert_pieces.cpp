#include "models/cpu/expert_pieces.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "models/cpu/costs.h"
#include "models/cpu/gates.h"
#include "models/sessions/pass_watch.h"
#include "quant/linear_way.h"
#include "quant/rows_alike.h"
#include "quant/thread_pool.h"

namespace halfbyte::models::cpu {
namespace {

// Rows of a piece: matrices are unpacked for each, which shows below the least.
constexpr std::int64_t kLeastRows = 16, kMostRows = 128;
// What is between a piece's products: it should stay in a second-level cache.
constexpr std::int64_t kBytesBetween = 384 << 10;
// Pieces that a thread should have, lest others wait for the last one.
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
  if (rows < kLeastRows * static_cast<std::int64_t>(experts.downs.size())) return 0;
  const std::int64_t most = std::min(kMostRows, kBytesBetween / between_bytes(experts));
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
      const std::int64_t rows = experts_.downs[expert].arguments.rows, count = (rows + most - 1) / most;
      for (std::int64_t i = 0; i < count; ++i)
        work_.pieces.push_back({expert, rows * i / count, rows * (i + 1) / count});
    }
    std::ranges::stable_sort(work_.pieces, std::ranges::greater{}, &ExpertPiece::rows);
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
    for (std::size_t begin = 0, end; begin < work_.pieces.size(); begin = end) {
      PassWatch::check();
      std::int64_t products = products_of(work_.pieces[begin]);
      for (end = begin + 1; end < work_.pieces.size() && products + products_of(work_.pieces[end]) <= most; ++end)
        products += products_of(work_.pieces[end]);
      run(std::span(work_.pieces).subspan(begin, end - begin));
    }
  }

 private:
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
    Inputs inputs = inputs_of(piece);
    Buffer* const outputs[] = {&own.first, &own.second};
    for (std::size_t i = 0; i < experts_.inputs_each(); ++i)
      inputs[i].arguments.output =
          reinterpret_cast<std::byte*>(outputs[i]->floats(piece.rows() * inputs[i].weight.out_features));
    quant::linear(std::span(inputs).first(experts_.inputs_each()));
    quant::Product down = down_of(piece);
    down.arguments.input =
        gated({experts_.activation, piece.rows(), down.weight.in_features, down.arguments.input_dtype},
              own.first.floats(0), experts_.inputs_each() == 1 ? nullptr : own.second.floats(0), own.between);
    quant::linear(std::span(&down, 1));
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

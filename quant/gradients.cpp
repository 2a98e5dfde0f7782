#include "quant/gradients.h"

#include <algorithm>

#include "quant/kernels/activation_kernels.h"
#include "quant/products/call.h"
#include "quant/row_values.h"
#include "quant/thread_pool.h"
#include "quant/with_gradients.h"

namespace halfbyte::quant {
namespace {

// Values of a row that are worked on while they are in a cache, and rows that are so together.
constexpr std::int64_t kChunk = 1024, kRowsAtOnce = 16;
// Rows are summed in strips of so many at least, and so many strips at most: sums do not depend on the threads.
constexpr std::int64_t kStripRows = 64, kMostStrips = 16;
constexpr std::int64_t kParallelValues = 8 << 10;
static_assert(kLowRankRows == kernels::kOuterRows && kRowsAtOnce % kLowRankRows == 0);

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }
std::int64_t pieces_of(std::int64_t count, std::int64_t piece) { return (count + piece - 1) / piece; }

// Calls work(begin, count) for pieces of `size`.
template <class Work>
void for_chunks(std::int64_t size, std::int64_t chunk, const Work& work) {
  for (std::int64_t begin = 0; begin < size; begin += chunk) work(begin, std::min(chunk, size - begin));
}

// Some rows of what a product is given, or of its gradient, by the kernels.
class LowRankRows {
 public:
  LowRankRows(const kernels::Table& table, const LowRank& is, std::int64_t first, std::int64_t count)
      : table_(table), is_(is), first_(first), count_(count) {}

  // hidden = scaling * x * matrix^T, and sums += outer^T * x where they are wanted. Shapes: x (rows, size), matrix and
  // sums (rank, size), hidden and outer (rows rounded up, rank).
  void reduce(const ConstValues& x, std::int64_t size, const float* matrix, float* hidden, const float* outer,
              float* sums) {
    float* const out = hidden + first_ * is_.rank;
    std::fill_n(out, pieces_of(count_, kLowRankRows) * kLowRankRows * is_.rank, 0.0f);
    for_chunks(size, kChunk, [&](std::int64_t begin, std::int64_t n) {
      load(x, size, begin, n);
      for (std::int64_t row = 0; row < count_; ++row)
        kernels().add_dots(values_ + row * stride_, matrix + begin, to_size(size), to_size(n), to_size(is_.rank),
                           out + row * is_.rank);
      if (sums) add_outer(outer, size, n, sums + begin);
    });
    for (std::int64_t i = 0; i < count_ * is_.rank; ++i) out[i] *= is_.scaling;
  }

  // sums += factors^T * x.
  void sum(const ConstValues& x, std::int64_t size, const float* factors, float* sums) {
    for_chunks(size, kChunk, [&](std::int64_t begin, std::int64_t n) {
      load(x, size, begin, n);
      add_outer(factors, size, n, sums + begin);
    });
  }

  // out = factors * matrix, or more by that. Shapes: factors (rows, rank), matrix (rank, size), out (rows, size).
  void expand(const float* factors, std::int64_t size, const float* matrix, const Values& out, bool is_added) const {
    for_chunks(size, kChunk, [&](std::int64_t begin, std::int64_t n) {
      for (std::int64_t row = first_; row < first_ + count_; ++row) {
        float buffer[kChunk];
        const std::int64_t at = row * size + begin;
        float* const sums = place_of_values(out, at, buffer);
        if (!is_added) {
          std::fill_n(sums, n, 0.0f);
        } else if (sums == buffer) {
          loaded_values(table_, {out.data, out.dtype}, at, n, buffer);
        }
        kernels().add_rows(factors + row * is_.rank, matrix + begin, to_size(size), to_size(n), to_size(is_.rank),
                           sums);
        store_values(table_, sums, n, out, at);
      }
    });
  }

 private:
  const kernels::ActivationTable& kernels() const { return *table_.activations; }

  // Where they lie if they are float32 and no row is missing.
  void load(const ConstValues& x, std::int64_t size, std::int64_t begin, std::int64_t n) {
    const std::int64_t at = first_ * size + begin;
    if (x.dtype == Dtype::kFloat32 && count_ % kLowRankRows == 0) {
      values_ = reinterpret_cast<const float*>(x.data) + at;
      stride_ = size;
      return;
    }
    thread_local Floats buffer;
    float* const to = buffer.at_least(to_size(kRowsAtOnce * kChunk));
    values_ = to;
    stride_ = kChunk;
    for (std::int64_t row = 0; row < pieces_of(count_, kLowRankRows) * kLowRankRows; ++row) {
      if (row >= count_) {
        std::fill_n(to + row * kChunk, n, 0.0f);
      } else if (const float* from = loaded_values(table_, x, at + row * size, n, to + row * kChunk);
                 from != to + row * kChunk) {
        std::copy_n(from, n, to + row * kChunk);
      }
    }
  }

  void add_outer(const float* factors, std::int64_t size, std::int64_t n, float* sums) const {
    for (std::int64_t row = 0; row < count_; row += kLowRankRows)
      kernels().add_outer(factors + (first_ + row) * is_.rank, values_ + row * stride_, to_size(stride_), to_size(size),
                          to_size(n), to_size(is_.rank), sums);
  }

  const kernels::Table& table_;
  const LowRank& is_;
  std::int64_t first_, count_;
  const float* values_ = nullptr;
  std::int64_t stride_ = 0;
};

// Sums over rows, one of each strip's.
class StripSums {
 public:
  StripSums(std::int64_t strips, std::int64_t size, float* out, Floats& room)
      : strips_(out ? strips : 0), size_(size), out_(out), all_(room.at_least(to_size(strips_ * size))) {}

  float* of(std::int64_t strip) const { return out_ ? all_ + strip * size_ : nullptr; }
  float* begin(std::int64_t strip) const {
    if (out_) std::fill_n(of(strip), size_, 0.0f);
    return of(strip);
  }
  std::int64_t pieces() const { return out_ ? pieces_of(size_, kChunk) : 0; }
  // In the order of the strips.
  void add_up(const kernels::Table& table, std::int64_t piece) const {
    const std::int64_t begin = piece * kChunk;
    const std::size_t n = to_size(std::min(kChunk, size_ - begin));
    std::copy_n(all_ + begin, n, out_ + begin);
    for (std::int64_t strip = 1; strip < strips_; ++strip)
      table.activations->add(out_ + begin, all_ + strip * size_ + begin, n, out_ + begin);
  }

 private:
  std::int64_t strips_, size_;
  float *out_, *all_;
};

// Rows and columns that are turned at a time: a line of cache of each.
constexpr std::int64_t kTurned = 32;

}  // namespace

void silu_gradients(const kernels::Table& table, const SiluGradients& a) {
  for_each_piece(a.rows, a.rows * a.size > kParallelValues, [&](std::int64_t row) {
    for_chunks(a.size, kChunk, [&](std::int64_t begin, std::int64_t n) {
      float buffer[kChunk];
      const std::int64_t at = row * a.size + begin;
      table.activations->silu_gradients(a.gate + row * a.gate_stride + begin, a.up + row * a.up_stride + begin,
                                        loaded_values(table, a.of_product, at, n, buffer), to_size(n), a.of_gate + at,
                                        a.of_up + at);
    });
  });
}

void turn_rows(const kernels::Table& table, const TurnRows& a) {
  for_each_piece(pieces_of(a.size, kTurned), a.rows * a.size > kParallelValues, [&](std::int64_t piece) {
    const std::int64_t begin = piece * kTurned, columns = std::min(kTurned, a.size - begin);
    for_chunks(a.rows, kTurned, [&](std::int64_t first, std::int64_t count) {
      float buffer[kTurned], turned[kTurned * kTurned];
      for (std::int64_t row = 0; row < count; ++row) {
        const float* const from = loaded_values(table, a.x, (first + row) * a.size + begin, columns, buffer);
        for (std::int64_t i = 0; i < columns; ++i) turned[i * kTurned + row] = from[i];
      }
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::int64_t at = (begin + i) * a.rows + first;
        float* const to = place_of_values(a.out, at, turned + i * kTurned);
        if (to != turned + i * kTurned) std::copy_n(turned + i * kTurned, count, to);
        store_values(table, to, count, a.out, at);
      }
    });
  });
}

void add_low_rank(const kernels::Table& table, const LowRankForward& a) {
  const LowRank& is = a.sizes;
  const bool is_worth_threads = is.rows * (is.in_features + is.out_features) > kParallelValues;
  for_each_piece(pieces_of(is.rows, kRowsAtOnce), is_worth_threads, [&](std::int64_t piece) {
    const std::int64_t first = piece * kRowsAtOnce;
    LowRankRows rows(table, is, first, std::min(kRowsAtOnce, is.rows - first));
    rows.reduce(a.x, is.in_features, is.a, a.hidden, nullptr, nullptr);
    rows.expand(a.hidden, is.out_features, is.b, a.result, /*is_added=*/true);
  });
}

void low_rank_gradients(const kernels::Table& table, const LowRankBackward& a) {
  const LowRank& is = a.sizes;
  const std::int64_t blocks = pieces_of(is.rows, kRowsAtOnce);
  const std::int64_t strips = std::clamp<std::int64_t>(is.rows / kStripRows, 1, kMostStrips);
  thread_local Floats room_of_a, room_of_b;
  const StripSums of_a(strips, is.rank * is.in_features, a.of_a, room_of_a);
  const StripSums of_b(strips, is.rank * is.out_features, a.of_b, room_of_b);
  const bool is_worth_threads = is.rows * (is.in_features + is.out_features) > kParallelValues;
  for_each_piece(strips, is_worth_threads, [&](std::int64_t strip) {
    float *const sums_a = of_a.begin(strip), *const sums_b = of_b.begin(strip);
    for (std::int64_t block = blocks * strip / strips; block < blocks * (strip + 1) / strips; ++block) {
      const std::int64_t first = block * kRowsAtOnce;
      LowRankRows rows(table, is, first, std::min(kRowsAtOnce, is.rows - first));
      rows.reduce(a.of_result, is.out_features, is.b, a.of_hidden, a.hidden, sums_b);
      if (a.of_x.data) rows.expand(a.of_hidden, is.in_features, is.a, a.of_x, a.adds_to_x);
      if (sums_a) rows.sum(a.x, is.in_features, a.of_hidden, sums_a);
    }
  });
  for_each_piece(of_a.pieces() + of_b.pieces(), is_worth_threads, [&](std::int64_t piece) {
    piece < of_a.pieces() ? of_a.add_up(table, piece) : of_b.add_up(table, piece - of_a.pieces());
  });
}

void silu_gradients(const SiluGradients& arguments) { silu_gradients(kernels::kernels(), arguments); }
void turn_rows(const TurnRows& arguments) { turn_rows(kernels::kernels(), arguments); }
void add_low_rank(const LowRankForward& arguments) { add_low_rank(kernels::kernels(), arguments); }
void low_rank_gradients(const LowRankBackward& arguments) { low_rank_gradients(kernels::kernels(), arguments); }

}  // namespace halfbyte::quant

// A head at a time, by blocks of queries, with keys in rows: what a query's softmax needs of all keys is in its
// logsumexp, so that weights are made anew from products.
#include "quant/attention_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/kernels/activation_kernels.h"
#include "quant/products/call.h"
#include "quant/thread_pool.h"
#include "quant/with_gradients.h"

namespace halfbyte::quant {
namespace {

using kernels::kBfloat16;
using kernels::kStepBytes;
using kernels::kTileRows;

constexpr std::size_t kValueBytes = 2, kValuesPerStep = 2;
// Queries of a block: tiles of them, of which each is multiplied with all keys that it sees.
constexpr std::size_t kTiles = 4, kQueries = kTiles * kTileRows;
// Of a sequence that is not worth waking other threads.
constexpr std::int64_t kFewTokens = 16;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// Products of panels of rows with tiles of kTileRows columns.
class Products {
 public:
  explicit Products(const kernels::Table& table) : table_(table), columns_(*table.bfloat16_columns) {}

  std::size_t steps(std::size_t values) const {
    return round_up((values + kValuesPerStep - 1) / kValuesPerStep, columns_.input.block_steps);
  }
  std::size_t tile_bytes(std::size_t values) const { return steps(values) * kTileRows * kStepBytes; }
  std::size_t row_bytes(std::size_t values) const { return steps(values) * kStepBytes; }

  // Rows of `values` values, row_bytes apart, as what multiply takes, with zeros up to whole blocks of steps.
  void arrange(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t values, Byte* out) {
    const std::size_t all = steps(values), bytes = all * kStepBytes;
    for (std::size_t first = 0; first < count; first += columns_.input.most_rows) {
      const std::size_t height = std::min(columns_.input.most_rows, count - first);
      const Byte* from = rows + first * row_bytes;
      std::size_t stride = row_bytes;
      if (values * kValueBytes != bytes) {
        Byte* const copies = copies_.at_least(columns_.input.most_rows * bytes);
        for (std::size_t row = 0; row < height; ++row) {
          std::memcpy(copies + row * bytes, from + row * row_bytes, values * kValueBytes);
          std::memset(copies + row * bytes + values * kValueBytes, 0, bytes - values * kValueBytes);
        }
        from = copies;
        stride = bytes;
      }
      arrange_steps(columns_, from, stride, height, all, out + first * bytes);
    }
  }

  // Up to kTileRows rows as the columns of a tile.
  void tile_of_rows(const Byte* rows, std::size_t row_bytes, std::size_t count, std::size_t values, Byte* tile) const {
    std::memset(tile, 0, tile_bytes(values));
    for (std::size_t first = 0; first < count; first += columns_.input.most_rows)
      columns_.interleave(rows + first * row_bytes, row_bytes, std::min(columns_.input.most_rows, count - first),
                          values / kValuesPerStep, tile + first * kStepBytes, kTileRows);
  }

  // Rows of floats, each of `columns`, as tiles of their columns, tile_bytes(count) apart.
  void tiles_of_columns(const float* rows, std::size_t stride, std::size_t count, std::size_t columns,
                        Byte* tiles) const {
    const std::size_t bytes = tile_bytes(count), used = (count + 1) / kValuesPerStep * kTileRows * kStepBytes;
    for (std::size_t tile = 0; tile * kTileRows < columns; ++tile)
      std::memset(tiles + tile * bytes + used, 0, bytes - used);
    for (std::size_t row = 0; row < count; row += kValuesPerStep)
      columns_.pack(rows + row * stride, row + 1 < count ? rows + (row + 1) * stride : nullptr, columns,
                    tiles + row / kValuesPerStep * kTileRows * kStepBytes, bytes);
  }

  // Rows of a result that begins with so many rows of `all`: whole panels.
  std::size_t room_for(std::size_t count, std::size_t all) const {
    return std::min(round_up(count, columns_.input.most_rows), all);
  }

  // Rows that were arranged together.
  struct Arranged {
    const Byte* data;
    std::size_t rows, values;
  };
  // out (room_for(count), kTileRows) = `count` rows * tile over the first `values` of each, or more by that.
  void multiply(const Arranged& from, std::size_t count, const Byte* tile, std::size_t values, bool is_added,
                float* out) const {
    kernels::PanelArguments a{};
    a.tile = tile;
    a.tiles = 1;
    a.groups = 1;
    a.steps_per_group = steps(values);
    a.scales = kOnes.data();
    a.is_first = !is_added;
    for (std::size_t first = 0; first < count; first += columns_.input.most_rows) {
      a.rows = std::min(columns_.input.most_rows, from.rows - first);
      a.input = from.data + first * row_bytes(from.values);
      a.out = out + first * kTileRows;
      columns_.multiply(a);
    }
  }

  void load(const Byte* from, std::size_t count, float* out) const { table_.load(kBfloat16, from, count, out); }
  void store(const float* from, std::size_t count, Byte* out) const { table_.store(kBfloat16, from, count, out); }
  const kernels::Table& table() const { return table_; }

 private:
  const kernels::Table& table_;
  const kernels::ColumnTable& columns_;
  Aligned<Byte> copies_;
};

// One head's rows.
struct HeadView {
  const Byte* data;
  std::size_t row_bytes;
  HeadView(const Bfloat16Heads& all, std::int64_t group, std::int64_t head)
      : data(reinterpret_cast<const Byte*>(all.data) +
             to_size(group * all.group_stride + head * all.head_stride) * kValueBytes),
        row_bytes(to_size(all.token_stride) * kValueBytes) {}
  const Byte* row(std::size_t token) const { return data + token * row_bytes; }
};

// What a thread keeps from head to head.
struct Room {
  Aligned<Byte> keys, values, turned, turned_keys, query_tiles, gradient_tiles, query_columns, gradient_columns;
  Aligned<Byte> weights, score_gradients, arranged, of_scores;
  Floats floats, shares, scores, products, of_keys, of_values, of_queries;
};

class Head {
 public:
  Head(const kernels::Table& table, const AttentionGradients& a, std::int64_t head, Room& room)
      : p_(table),
        a_(a),
        head_(head),
        tokens_(to_size(a.tokens)),
        dim_(to_size(a.head_dim)),
        q_(a.queries, head / a.heads, head % a.heads),
        k_(a.keys, head / a.heads, 0),
        v_(a.values, head / a.heads, 0),
        out_(a.result, head / a.heads, head % a.heads),
        g_(a.of_result, head / a.heads, head % a.heads),
        room_(room),
        tiles_(round_up(dim_, kTileRows) / kTileRows) {}

  void run() {
    prepare();
    for (std::size_t begin = 0; begin < tokens_; begin += kQueries) block(begin, std::min(begin + kQueries, tokens_));
    write(of_keys_, a_.of_keys);
    write(of_values_, a_.of_values);
  }

 private:
  void prepare() {
    const std::size_t sums = tokens_ * tiles_ * kTileRows;
    of_keys_ = room_.of_keys.at_least(sums);
    of_values_ = room_.of_values.at_least(sums);
    std::fill_n(of_keys_, sums, 0.0f);
    std::fill_n(of_values_, sums, 0.0f);
    p_.arrange(k_.data, k_.row_bytes, tokens_, dim_, keys_ = room_.keys.at_least(tokens_ * p_.row_bytes(dim_)));
    p_.arrange(v_.data, v_.row_bytes, tokens_, dim_, values_ = room_.values.at_least(tokens_ * p_.row_bytes(dim_)));
    Byte* const turned = room_.turned.at_least(dim_ * tokens_ * kValueBytes);
    for (std::size_t token = 0; token < tokens_; ++token) {
      const Byte* const row = k_.row(token);
      for (std::size_t i = 0; i < dim_; ++i)
        std::memcpy(turned + (i * tokens_ + token) * kValueBytes, row + i * kValueBytes, kValueBytes);
    }
    p_.arrange(turned, tokens_ * kValueBytes, dim_, tokens_,
               turned_keys_ = room_.turned_keys.at_least(dim_ * p_.row_bytes(tokens_)));
    // Of each query, the sum of its result's products with their gradients.
    const std::size_t padded = round_up(tokens_, kQueries);
    shares_ = room_.shares.at_least(2 * padded);
    logsumexp_ = shares_ + padded;
    std::fill_n(shares_, padded, 0.0f);
    std::fill_n(logsumexp_, padded, INFINITY);
    std::copy_n(a_.logsumexp + to_size(head_) * tokens_, tokens_, logsumexp_);
    float* const rows = room_.floats.at_least(2 * dim_);
    for (std::size_t token = 0; token < tokens_; ++token) {
      p_.load(out_.row(token), dim_, rows);
      p_.load(g_.row(token), dim_, rows + dim_);
      p_.table().activations->add_dots(rows, rows + dim_, 0, dim_, 1, shares_ + token);
    }
  }

  // Rows of the block as floats, turned into tiles of columns.
  Byte* columns_of(const HeadView& rows, std::size_t begin, std::size_t end, Aligned<Byte>& room) {
    const std::size_t width = tiles_ * kTileRows;
    float* const floats = room_.floats.at_least(kQueries * width);
    for (std::size_t row = begin; row < end; ++row) p_.load(rows.row(row), dim_, floats + (row - begin) * width);
    Byte* const out = room.at_least(tiles_ * p_.tile_bytes(kQueries));
    p_.tiles_of_columns(floats, width, end - begin, dim_, out);
    return out;
  }

  void block(std::size_t begin, std::size_t end) {
    const std::size_t count = end - begin, row_bytes = kQueries * kValueBytes;
    weights_ = room_.weights.at_least(end * row_bytes);
    score_gradients_ = room_.score_gradients.at_least(end * row_bytes);
    for (std::size_t tile = 0; tile * kTileRows < count; ++tile) of_tile(begin, end, tile);
    const std::size_t values = std::min(kQueries, round_up(count, kTileRows));
    add(weights_, values, end, columns_of(g_, begin, end, room_.gradient_columns), count, of_values_);
    add(score_gradients_, values, end, columns_of(q_, begin, end, room_.query_columns), count, of_keys_);
  }

  // sums += rows times tiles. Shapes: rows (keys, kQueries), tiles of (queries, head_dim).
  void add(const Byte* rows, std::size_t values, std::size_t keys, const Byte* tiles, std::size_t count, float* sums) {
    Byte* const arranged = room_.arranged.at_least(keys * p_.row_bytes(kQueries));
    p_.arrange(rows, kQueries * kValueBytes, keys, values, arranged);
    for (std::size_t tile = 0; tile < tiles_; ++tile)
      p_.multiply({arranged, keys, values}, keys, tiles + tile * p_.tile_bytes(count), count, /*is_added=*/true,
                  sums + tile * tokens_ * kTileRows);
  }

  // Some queries against all keys that one of them sees; the block's others have no weight.
  void of_tile(std::size_t begin, std::size_t block_end, std::size_t tile) {
    const std::size_t first = begin + tile * kTileRows, end = std::min(first + kTileRows, block_end),
                      count = end - first;
    Byte* const queries = room_.query_tiles.at_least(p_.tile_bytes(dim_));
    Byte* const gradients = room_.gradient_tiles.at_least(p_.tile_bytes(dim_));
    const std::size_t size = p_.room_for(end, tokens_) * kTileRows;
    float *const scores = room_.scores.at_least(size), *const products = room_.products.at_least(size);
    p_.tile_of_rows(q_.row(first), q_.row_bytes, count, dim_, queries);
    p_.tile_of_rows(g_.row(first), g_.row_bytes, count, dim_, gradients);
    p_.multiply({keys_, tokens_, dim_}, end, queries, dim_, /*is_added=*/false, scores);
    p_.multiply({values_, tokens_, dim_}, end, gradients, dim_, /*is_added=*/false, products);
    for (std::size_t key = 0; key < end; ++key) {
      const std::size_t unseen = key > first ? std::min(key - first, kTileRows) : 0;
      float *const score = scores + key * kTileRows, *const product = products + key * kTileRows;
      p_.table().attention->score_gradients(score, a_.scale, logsumexp_ + first, shares_ + first, unseen, kTileRows,
                                            score, product);
      const std::size_t at = (key * kQueries + tile * kTileRows) * kValueBytes;
      p_.store(score, kTileRows, weights_ + at);
      p_.store(product, kTileRows, score_gradients_ + at);
    }
    for (std::size_t key = end; key < block_end; ++key) {
      const std::size_t at = (key * kQueries + tile * kTileRows) * kValueBytes;
      std::memset(weights_ + at, 0, kTileRows * kValueBytes);
      std::memset(score_gradients_ + at, 0, kTileRows * kValueBytes);
    }
    Byte* const of_scores = room_.of_scores.at_least(p_.tile_bytes(end));
    p_.tiles_of_columns(products, kTileRows, end, kTileRows, of_scores);
    float* const of_queries = room_.of_queries.at_least((dim_ + 1) * kTileRows);
    p_.multiply({turned_keys_, dim_, tokens_}, dim_, of_scores, end, /*is_added=*/false, of_queries);
    float* const row = room_.floats.at_least(dim_);
    for (std::size_t query = 0; query < count; ++query) {
      for (std::size_t i = 0; i < dim_; ++i) row[i] = of_queries[i * kTileRows + query];
      const std::size_t at = (to_size(head_) * tokens_ + first + query) * dim_;
      p_.store(row, dim_, reinterpret_cast<Byte*>(a_.of_queries) + at * kValueBytes);
    }
  }

  // From tiles of columns to rows.
  void write(const float* sums, float* out) const {
    for (std::size_t token = 0; token < tokens_; ++token) {
      float* const row = out + (to_size(head_) * tokens_ + token) * dim_;
      for (std::size_t begin = 0; begin < dim_; begin += kTileRows)
        std::copy_n(sums + begin * tokens_ + token * kTileRows, std::min(kTileRows, dim_ - begin), row + begin);
    }
  }

  Products p_;
  const AttentionGradients& a_;
  std::int64_t head_;
  std::size_t tokens_, dim_;
  HeadView q_, k_, v_, out_, g_;
  Room& room_;
  std::size_t tiles_;  // of a head's values
  float *of_keys_ = nullptr, *of_values_ = nullptr, *shares_ = nullptr, *logsumexp_ = nullptr;
  Byte *keys_ = nullptr, *values_ = nullptr, *turned_keys_ = nullptr, *weights_ = nullptr, *score_gradients_ = nullptr;
};

}  // namespace

bool has_attention_gradients() noexcept { return kernels::kernels().bfloat16_columns != nullptr; }

void attention_gradients(const kernels::Table& table, const AttentionGradients& arguments) {
  for_each_piece(arguments.groups * arguments.heads, arguments.tokens > kFewTokens, [&](std::int64_t head) {
    thread_local Room room;
    Head(table, arguments, head, room).run();
  });
}

void attention_gradients(const AttentionGradients& arguments) { attention_gradients(kernels::kernels(), arguments); }

}  // namespace halfbyte::quant

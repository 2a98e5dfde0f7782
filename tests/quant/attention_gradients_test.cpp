// Gradients of causal attention against double precision, on every level that has them, and with any number of threads.
#include "quant/attention_gradients.h"

#include <cmath>
#include <vector>

#include "quant/threads.h"
#include "quant/with_gradients.h"
#include "tests/catch.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"
#include "tests/quant/rounded.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Table;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// As a product has them: the heads of a token together. Shapes: (tokens, groups * heads, head_dim), keys and values
// (tokens, groups, head_dim).
struct Case {
  std::int64_t groups, heads, tokens, dim;
  Rounded q, k, v, of_result;
  double scale = 0.3;
  std::vector<float> logsumexp;
  std::vector<double> weights;  // (groups, heads, tokens, tokens)
  std::vector<std::byte> result;

  Case(std::int64_t groups_, std::int64_t heads_, std::int64_t tokens_, std::int64_t dim_)
      : groups(groups_),
        heads(heads_),
        tokens(tokens_),
        dim(dim_),
        q(to_size(tokens * groups * heads * dim), 1, Dtype::kBfloat16),
        k(to_size(tokens * groups * dim), 2, Dtype::kBfloat16),
        v(to_size(tokens * groups * dim), 3, Dtype::kBfloat16),
        of_result(q.values.size(), 4, Dtype::kBfloat16) {
    attend();
  }

  std::size_t query(std::int64_t head, std::int64_t token) const {
    return to_size((token * groups * heads + head) * dim);
  }
  std::size_t key(std::int64_t head, std::int64_t token) const {
    return to_size((token * groups + head / heads) * dim);
  }
  double& weight(std::int64_t head, std::int64_t token, std::int64_t seen) {
    return weights[to_size((head * tokens + token) * tokens + seen)];
  }
  double dot(const std::vector<float>& a, std::size_t at_a, const std::vector<float>& b, std::size_t at_b) const {
    double sum = 0;
    for (std::size_t i = 0; i < to_size(dim); ++i) sum += static_cast<double>(a[at_a + i]) * b[at_b + i];
    return sum;
  }

  void attend() {
    weights.resize(to_size(groups * heads * tokens * tokens));
    std::vector<float> values(q.values.size());
    for (std::int64_t head = 0; head < groups * heads; ++head) {
      for (std::int64_t token = 0; token < tokens; ++token) {
        double sum = 0;
        for (std::int64_t seen = 0; seen <= token; ++seen)
          sum += weight(head, token, seen) =
              std::exp(scale * dot(q.values, query(head, token), k.values, key(head, seen)));
        logsumexp.push_back(static_cast<float>(std::log(sum)));
        for (std::int64_t seen = 0; seen <= token; ++seen) {
          const double share = weight(head, token, seen) /= sum;
          for (std::size_t i = 0; i < to_size(dim); ++i)
            values[query(head, token) + i] += static_cast<float>(share * v.values[key(head, seen) + i]);
        }
      }
    }
    result = to_dtype(values, Dtype::kBfloat16);
  }
};

struct Gradients {
  std::vector<std::byte> of_queries;
  std::vector<float> of_keys, of_values;  // (groups, heads, tokens, head_dim)
};

Gradients run(const Table& table, const Case& c) {
  const std::size_t size = c.q.values.size();
  Gradients out{std::vector<std::byte>(2 * size), std::vector<float>(size), std::vector<float>(size)};
  const auto of_query = [&](const std::vector<std::byte>& data) {
    return Bfloat16Heads{data.data(), c.heads * c.dim, c.dim, c.groups * c.heads * c.dim};
  };
  const auto of_key = [&](const std::vector<std::byte>& data) {
    return Bfloat16Heads{data.data(), c.dim, 0, c.groups * c.dim};
  };
  attention_gradients(table, {c.groups, c.heads, c.tokens, c.dim, static_cast<float>(c.scale), of_query(c.q.data),
                              of_key(c.k.data), of_key(c.v.data), of_query(c.result), of_query(c.of_result.data),
                              c.logsumexp.data(), out.of_queries.data(), out.of_keys.data(), out.of_values.data()});
  return out;
}

struct Wanted {
  std::vector<double> of_queries, of_keys, of_values;
};

Wanted in_double(Case& c) {
  const std::size_t size = c.q.values.size();
  Wanted out{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
  for (std::int64_t head = 0; head < c.groups * c.heads; ++head) {
    for (std::int64_t token = 0; token < c.tokens; ++token) {
      const std::size_t at = c.query(head, token);
      double mean = 0;
      for (std::int64_t seen = 0; seen <= token; ++seen)
        mean += c.weight(head, token, seen) * c.dot(c.of_result.values, at, c.v.values, c.key(head, seen));
      for (std::int64_t seen = 0; seen <= token; ++seen) {
        const double weight = c.weight(head, token, seen);
        const double of_score =
            weight * (c.dot(c.of_result.values, at, c.v.values, c.key(head, seen)) - mean) * c.scale;
        for (std::size_t i = 0; i < to_size(c.dim); ++i) {
          const std::size_t query = to_size((head * c.tokens + token) * c.dim) + i;
          const std::size_t key = to_size((head * c.tokens + seen) * c.dim) + i;
          out.of_queries[query] += of_score * c.k.values[c.key(head, seen) + i];
          out.of_keys[key] += of_score * c.q.values[at + i];
          out.of_values[key] += weight * c.of_result.values[at + i];
        }
      }
    }
  }
  return out;
}

// Relative to the largest.
double difference(const std::vector<float>& found, const std::vector<double>& wanted) {
  double most = 0, largest = 1e-6;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    most = std::max(most, std::isnan(found[i]) ? INFINITY : std::abs(wanted[i] - static_cast<double>(found[i])));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return most / largest;
}

// Weights and their gradients are rounded to bfloat16, and so is what the result's share is made of.
constexpr double kBound = 1e-2;

}  // namespace

TEST_CASE("gradients of attention equal double precision", "[gradients][levels]") {
  // One token; heads that fill no tile, and none of its blocks; several blocks of queries, the last with a rest.
  for (Case& c : std::vector<Case>{{1, 1, 1, 64}, {2, 3, 37, 20}, {1, 2, 200, 64}, {2, 1, 129, 96}, {1, 2, 260, 34}}) {
    const Wanted wanted = in_double(c);
    for (const Table* table : tables()) {
      if (!table->bfloat16_columns) continue;
      INFO(table->name << ", " << c.tokens << " tokens, head_dim " << c.dim);
      const Gradients found = run(*table, c);
      CHECK(difference(to_floats(found.of_queries, Dtype::kBfloat16), wanted.of_queries) < kBound);
      CHECK(difference(found.of_keys, wanted.of_keys) < kBound);
      CHECK(difference(found.of_values, wanted.of_values) < kBound);
    }
  }
}

TEST_CASE("gradients of attention have the same bits with any number of threads", "[gradients]") {
  if (!has_attention_gradients()) return;
  const Case c(2, 3, 70, 32);
  const int before = max_threads();
  set_max_threads(1);
  const Gradients alone = run(kernels::kernels(), c);
  for (const int threads : {2, 3}) {
    set_max_threads(threads);
    const Gradients found = run(kernels::kernels(), c);
    CHECK(found.of_queries == alone.of_queries);
    CHECK(found.of_keys == alone.of_keys);
    CHECK(found.of_values == alone.of_values);
  }
  set_max_threads(before);
}

}  // namespace halfbyte::quant

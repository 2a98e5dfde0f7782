// Speed of the quantiser and of the low-bit product, with a plain read of memory for the ratio.
// Rates: bytes/s is what must be read from memory, weights/s and flop/s as named. Run with OMP_NUM_THREADS set.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

#include "quant/memory_bandwidth.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;

constexpr std::int64_t kOut = 5632, kIn = 2048;
// Enough copies of a matrix that no cache holds them: a model reads each of its matrices once a token.
constexpr std::int64_t kFootprint = 256 << 20;

std::vector<std::byte> random_floats(std::int64_t count, Dtype dtype) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> pool(1 << 16);
  for (float& value : pool) value = normal(random);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(dtype)));
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(pool.size())) {
    convert(reinterpret_cast<const std::byte*>(pool.data()), Dtype::kFloat32, bytes.data() + i * size_bytes(dtype),
            dtype, std::min(count - i, static_cast<std::int64_t>(pool.size())));
  }
  return bytes;
}

struct Kind {
  const char* name;
  const Scheme* scheme;  // null: dense bfloat16
  std::int64_t group_size;
  std::int64_t out_features = kOut, in_features = kIn;
};
const Kind kKinds[] = {
    {"sym_int4/g32", &scheme(SchemeId::kSymInt4), 32},   {"sym_int4/g64", &scheme(SchemeId::kSymInt4), 64},
    {"sym_int4/g128", &scheme(SchemeId::kSymInt4), 128}, {"sym_int4/channel", &scheme(SchemeId::kSymInt4), kIn},
    {"sym_int8/g64", &scheme(SchemeId::kSymInt8), 64},   {"bfloat16", nullptr, kIn},
};
// The matrices of a Llama of 1.1 B parameters, forward and back.
const Kind kLayer[] = {
    {"2048x2048", &scheme(SchemeId::kSymInt4), 128, 2048, 2048},
    {"256x2048", &scheme(SchemeId::kSymInt4), 128, 256, 2048},
    {"5632x2048", &scheme(SchemeId::kSymInt4), 128, 5632, 2048},
    {"2048x5632", &scheme(SchemeId::kSymInt4), 128, 2048, 5632},
};

// As many matrices as make kFootprint, all of the same weights.
struct Matrices {
  std::vector<std::byte> rows, scales;
  std::int64_t count, row_bytes, scale_bytes;
  Kind kind;

  explicit Matrices(const Kind& kind_) : kind(kind_) {
    const std::vector<std::byte> weights = random_floats(kind.out_features * kind.in_features, Dtype::kBfloat16);
    row_bytes =
        kind.out_features * (kind.scheme ? packed_row_bytes(*kind.scheme, kind.in_features) : kind.in_features * 2);
    scale_bytes = kind.scheme ? kind.out_features * (kind.in_features / kind.group_size) * 2 : 0;
    count = kFootprint / row_bytes + 1;
    rows.resize(static_cast<std::size_t>(row_bytes * count));
    scales.resize(static_cast<std::size_t>(scale_bytes * count));
    ErrorStats stats;
    for (std::int64_t i = 0; i < count; ++i) {
      if (!kind.scheme) {
        std::memcpy(rows.data() + i * row_bytes, weights.data(), weights.size());
      } else {
        quantize_rows({weights.data(), Dtype::kBfloat16, kind.out_features, kind.in_features},
                      {kind.scheme, kind.group_size, Search::kAbsmax},
                      {rows.data() + i * row_bytes, scales.data() + i * scale_bytes}, stats);
      }
    }
  }
  WeightMatrix at(std::int64_t index) const {
    const std::int64_t i = index % count;
    return {kind.scheme,
            Dtype::kBfloat16,
            rows.data() + i * row_bytes,
            scales.data() + i * scale_bytes,
            Dtype::kBfloat16,
            kind.out_features,
            kind.in_features,
            kind.group_size};
  }
};

void run_linear(benchmark::State& state, const Kind& kind, std::int64_t m, Dtype dtype, Arithmetic arithmetic) {
  const Matrices matrices(kind);
  const std::vector<std::byte> input = random_floats(m * kind.in_features, dtype);
  std::vector<std::byte> output(static_cast<std::size_t>(m * kind.out_features * size_bytes(dtype)));
  std::int64_t index = 0;
  for (auto _ : state) {
    linear(matrices.at(index++), {input.data(), dtype, m, nullptr, dtype, output.data(), dtype, arithmetic});
  }
  state.SetBytesProcessed(state.iterations() * (matrices.row_bytes + matrices.scale_bytes));
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * kind.out_features * kind.in_features),
                         benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void run_transposed(benchmark::State& state, const Kind& kind, std::int64_t m, Dtype dtype) {
  const Matrices matrices(kind);
  const std::vector<std::byte> input = random_floats(m * kind.out_features, dtype);
  std::vector<std::byte> output(static_cast<std::size_t>(m * kind.in_features * size_bytes(dtype)));
  std::int64_t index = 0;
  for (auto _ : state)
    linear_transposed(matrices.at(index++), {input.data(), dtype, m, nullptr, dtype, output.data(), dtype});
  state.SetBytesProcessed(state.iterations() * (matrices.row_bytes + matrices.scale_bytes));
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * static_cast<double>(m * kind.out_features * kind.in_features),
                         benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void run_quantize(benchmark::State& state, SchemeId id, std::int64_t group_size, Search search) {
  constexpr std::int64_t kRows = 8192;
  const std::vector<std::byte> weights = random_floats(kRows * kIn, Dtype::kBfloat16);
  std::vector<std::byte> codes(static_cast<std::size_t>(kRows * packed_row_bytes(scheme(id), kIn)));
  std::vector<std::byte> scales(static_cast<std::size_t>(kRows * (kIn / group_size) * 2));
  ErrorStats stats;
  for (auto _ : state) {
    quantize_rows({weights.data(), Dtype::kBfloat16, kRows, kIn}, {&scheme(id), group_size, search},
                  {codes.data(), scales.data()}, stats);
  }
  state.SetItemsProcessed(state.iterations() * kRows * kIn);
  state.SetBytesProcessed(state.iterations() * kRows * kIn * 2);
}

void run_dequantize(benchmark::State& state, const Kind& kind, Dtype dtype) {
  const Matrices matrices(kind);
  std::vector<std::byte> out(static_cast<std::size_t>(kOut * kIn * size_bytes(dtype)));
  std::int64_t index = 0;
  for (auto _ : state) dequantize(matrices.at(index++), 0, kOut, out.data(), dtype);
  state.SetItemsProcessed(state.iterations() * kOut * kIn);
}

// What a token cannot be faster than.
void read_memory(benchmark::State& state) {
  MemoryReader memory(kFootprint);
  for (auto _ : state) benchmark::DoNotOptimize(memory.bytes_per_second(1));
  state.SetBytesProcessed(state.iterations() * kFootprint);
}

void scan_for_non_finite(benchmark::State& state) {
  constexpr std::int64_t kRows = 32768;
  const std::vector<std::byte> weights = random_floats(kRows * kIn, Dtype::kBfloat16);
  for (auto _ : state) benchmark::DoNotOptimize(find_non_finite({weights.data(), Dtype::kBfloat16, kRows, kIn}));
  state.SetBytesProcessed(state.iterations() * kRows * kIn * 2);
}

template <class... Arguments>
void add(const std::string& name, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), arguments...)->Unit(benchmark::kMillisecond)->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  add("read_memory", read_memory);
  add("find_non_finite", scan_for_non_finite);
  for (const SchemeId id : {SchemeId::kSymInt4, SchemeId::kSymInt8}) {
    for (const std::int64_t group_size : {std::int64_t{32}, std::int64_t{64}, std::int64_t{128}, kIn}) {
      const std::string name = std::string(scheme(id).name) + "/g" + std::to_string(group_size);
      add("quantize/absmax/" + name, run_quantize, id, group_size, Search::kAbsmax);
      add("quantize/search/" + name, run_quantize, id, group_size, Search::kSquaredError);
    }
  }
  for (const Kind& kind : kKinds) {
    add(std::string("dequantize/bfloat16/") + kind.name, run_dequantize, kind, Dtype::kBfloat16);
    for (const std::int64_t m : {1, 2, 4, 8, 16, 64, 512}) {
      const std::string name = std::to_string(m) + "/" + kind.name;
      add("linear/bfloat16/" + name, run_linear, kind, m, Dtype::kBfloat16, Arithmetic::kFloat);
      if (!kind.scheme) continue;
      add("linear/int8/" + name, run_linear, kind, m, Dtype::kBfloat16, Arithmetic::kInt8);
      if (kind.scheme->bits == 8) add("linear/mixed/" + name, run_linear, kind, m, Dtype::kBfloat16, Arithmetic::kMixed);
    }
    for (const std::int64_t m : {8, 64, 512}) {
      add("transposed/bfloat16/" + std::to_string(m) + "/" + kind.name, run_transposed, kind, m, Dtype::kBfloat16);
      add("transposed/float32/" + std::to_string(m) + "/" + kind.name, run_transposed, kind, m, Dtype::kFloat32);
    }
    for (const std::int64_t m : {1, 512}) {
      add("linear/float32/" + std::to_string(m) + "/" + kind.name, run_linear, kind, m, Dtype::kFloat32,
          Arithmetic::kFloat);
    }
  }
  for (const Kind& kind : kLayer) {
    add(std::string("layer/linear/") + kind.name, run_linear, kind, 512, Dtype::kBfloat16, Arithmetic::kFloat);
    add(std::string("layer/transposed/") + kind.name, run_transposed, kind, 512, Dtype::kBfloat16);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}

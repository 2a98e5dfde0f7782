#include "convert/synth_values.h"

#include <halfbyte/linear.h>

#include <algorithm>
#include <array>

namespace halfbyte::convert {
namespace {

constexpr std::size_t kChunk = 4096;
constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

// Source: splitmix64, Sebastiano Vigna (prng.di.unimi.it/splitmix64.c).
constexpr std::uint64_t mix(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr std::uint32_t sum_of_lanes(std::uint64_t bits) noexcept {
  const std::uint64_t pairs = (bits & 0x0000ffff0000ffff) + ((bits >> 16) & 0x0000ffff0000ffff);
  return static_cast<std::uint32_t>(pairs) + static_cast<std::uint32_t>(pairs >> 32);
}

// Twelve uniform numbers add up to a variance of 1: near enough to a normal distribution, and exact on every machine,
// which logarithms and sines are not.
float normal(std::uint64_t key, std::uint64_t index) noexcept {
  constexpr std::int32_t kMean = 12 * 65535 / 2;
  const std::uint64_t counter = key + 3 * index * kStep;
  const std::uint32_t sum =
      sum_of_lanes(mix(counter)) + sum_of_lanes(mix(counter + kStep)) + sum_of_lanes(mix(counter + 2 * kStep));
  return static_cast<float>(static_cast<std::int32_t>(sum) - kMean) * (1.0F / 65536.0F);
}

void fill_chunk(std::uint64_t key, std::uint64_t first, float deviation, Dtype dtype, std::span<std::byte> out) {
  const std::size_t count = out.size() / static_cast<std::size_t>(size_bytes(dtype));
  std::array<float, kChunk> values;
  for (std::size_t i = 0; i < count; ++i) values[i] = normal(key, first + i) * deviation;
  quant::convert(std::as_bytes(std::span(values)).data(), Dtype::kFloat32, out.data(), dtype,
                 static_cast<std::int64_t>(count));
}

}  // namespace

std::uint64_t value_key(std::uint64_t seed, std::string_view tensor_name) noexcept {
  std::uint64_t key = mix(seed + kStep);
  for (const char c : tensor_name) key = mix(key + static_cast<unsigned char>(c) + kStep);
  return key;
}

void fill_normal(std::uint64_t key, std::uint64_t first, float deviation, Dtype dtype, std::span<std::byte> out) {
  const std::size_t chunk_bytes = kChunk * static_cast<std::size_t>(size_bytes(dtype));
  const auto chunks = static_cast<std::int64_t>((out.size() + chunk_bytes - 1) / chunk_bytes);
#pragma omp parallel for schedule(static)
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const std::size_t at = static_cast<std::size_t>(chunk) * chunk_bytes;
    const auto bytes = out.subspan(at, std::min(chunk_bytes, out.size() - at));
    fill_chunk(key, first + static_cast<std::uint64_t>(chunk) * kChunk, deviation, dtype, bytes);
  }
}

void fill_ones(Dtype dtype, std::span<std::byte> out) {
  constexpr float kOne = 1.0F;
  const auto width = static_cast<std::size_t>(size_bytes(dtype));
  for (std::size_t at = 0; at < out.size(); at += width) {
    quant::convert(std::as_bytes(std::span(&kOne, 1)).data(), Dtype::kFloat32, out.data() + at, dtype, 1);
  }
}

}  // namespace halfbyte::convert

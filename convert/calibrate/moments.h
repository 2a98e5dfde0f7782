// What the products of a layer are given, as the sums that calibration needs: X^T X.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace halfbyte::models {
class Linear;
}

namespace halfbyte::convert::calibrate {

// Of Linears that share their input.
struct Part {
  std::vector<const models::Linear*> linears;  // in the order in which they were run
  at::Tensor sums;                             // (in_features, in_features), float32; its lower half is not filled
  at::Tensor drift;                            // (X0 - X)^T X with the original's inputs X0; not defined: not asked for
  std::int64_t tokens = 0;

  // The whole matrix.
  at::Tensor moments() const;
  // The same in the memory of the sums, which are gone then.
  at::Tensor take_moments();
};

// Whether this machine multiplies bfloat16 several times as fast as float32.
bool has_fast_bfloat16();

// Sees passes of one layer through a Tap.
class Moments {
 public:
  // What is multiplied: what the products are given in float32, or rounded to bfloat16; the sums are float32.
  explicit Moments(at::ScalarType factors = at::kFloat) : factors_(factors) {}
  // `original`: what the same product of the original is given for the same tokens; not defined: nobody asks.
  void add(const models::Linear& linear, const at::Tensor& input, const at::Tensor& original = {});
  const std::vector<Part>& parts() const noexcept { return parts_; }
  std::vector<Part>& parts() noexcept { return parts_; }
  // Of the sums, once this was added; 0 where it adds to those that are there.
  std::uint64_t bytes_with(const models::Linear& linear, const at::Tensor& input, bool has_drift = false) const;

 private:
  bool is_known(const models::Linear& linear) const;
  bool is_shared(const at::Tensor& input) const;
  Part& part_of(const models::Linear& linear, const at::Tensor& input);

  at::ScalarType factors_;
  std::vector<Part> parts_;
  at::Tensor last_;          // held, so that no other input can lie where it does
  std::size_t current_ = 0;  // the part that it belongs to
};

}  // namespace halfbyte::convert::calibrate

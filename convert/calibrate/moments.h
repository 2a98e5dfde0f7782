// What the products of a layer are given, as the sums that calibration needs: X^T X.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "convert/calibrate/share_loads.h"

namespace halfbyte::models {
class Linear;
}

namespace halfbyte::convert::calibrate {

// Which of several runs this is that sum up together: of each sum a run has some panels of columns, and of an expert's
// one run has all.
struct SumShare {
  int index = 0, count = 1;
};

// Of Linears that share their input.
struct Part {
  std::vector<const models::Linear*> linears;  // in the order in which they were run
  at::Tensor sums;                             // (in_features, in_features), float32; its lower half is not filled
  at::Tensor drift;                            // (X0 - X)^T X with the original's inputs X0; not defined: not asked for
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // in_features
  bool has_drift = false;    // it is asked for
  int owner = -1;            // the run that has all of it; others have no sums; -1: the sums are for all
  std::vector<int> owners = {}, drift_owners = {};  // of the panels, where they are divided

  // The whole matrix.
  at::Tensor moments() const;
  // The same in the memory of the sums, which are gone then.
  at::Tensor take_moments();
};

// Whether two products were given the same. Precondition: the first is held, so that no other can lie where it does.
bool is_same_input(const at::Tensor& held, const at::Tensor& input);

// What products were given in one batch, as sums take it. Shapes: (tokens, in_features).
struct InputRows {
  at::Tensor x;
  at::Tensor change;  // X0 - X; not defined: not asked for
};
InputRows rows_of(const at::Tensor& input, const at::Tensor& original, at::ScalarType factors);

// The same, kept elsewhere.
struct KeptInput {
  std::int64_t number;  // inputs of one number are the same
  std::int64_t tokens, columns;
  bool has_change;
  std::function<InputRows()> load;  // asked where this run sums it up
};

// Whether this machine multiplies bfloat16 several times as fast as float32.
bool has_fast_bfloat16();

// Sees passes of one layer through a Tap.
class Moments {
 public:
  // What is multiplied: what the products are given in float32, or rounded to bfloat16; the sums are float32.
  explicit Moments(at::ScalarType factors = at::kFloat, SumShare share = {})
      : factors_(factors), share_(share), loads_(share.count) {}
  // `original`: what the same product of the original is given for the same tokens; not defined: nobody asks.
  void add(const models::Linear& linear, const at::Tensor& input, const at::Tensor& original = {});
  void add(const models::Linear& linear, const KeptInput& input);
  const std::vector<Part>& parts() const noexcept { return parts_; }
  std::vector<Part>& parts() noexcept { return parts_; }
  // Of the sums, once this was added; 0 where it adds to those that are there. As if they were all in this run.
  std::uint64_t bytes_with(const models::Linear& linear, const at::Tensor& input, bool has_drift = false) const;
  std::uint64_t bytes_with(const models::Linear& linear, const KeptInput& input) const;

  // The panels that this run has summed up of what is for all runs; and those of another one, in the same order.
  void give(const std::function<void(std::span<const std::byte>)>& give) const;
  void take(int owner, const std::function<void(std::span<std::byte>)>& read);

 private:
  bool is_known(const models::Linear& linear) const;
  std::uint64_t bytes_with(std::int64_t columns, bool has_drift) const;
  Part& part_of(const models::Linear& linear, bool is_shared, std::int64_t columns, bool has_drift);
  void divide(Part& part);
  bool is_summed_here(const Part& part) const;
  bool has_panels(const Part& part) const;
  void add_rows(Part& part, const InputRows& rows) const;
  void for_each_panel(int owner, const std::function<void(at::Tensor)>& work) const;

  at::ScalarType factors_;
  SumShare share_;
  std::vector<Part> parts_;
  ShareLoads loads_;               // in products of a column with a column
  at::Tensor last_;                // held, so that no other input can lie where it does
  std::int64_t last_number_ = -1;  // of a kept one
  std::size_t current_ = 0;        // the part that it belongs to
};

}  // namespace halfbyte::convert::calibrate

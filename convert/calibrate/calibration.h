// A model's layers one after another: what each is given, the codes that are chosen by it, what it gives the next.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/calibrate.h>

#include "convert/calibrate/layer_runner.h"
#include "convert/calibrate/method.h"
#include "convert/calibrate/moments.h"
#include "convert/calibrator.h"

namespace halfbyte::convert::calibrate {

// The codes of one tensor: of a matrix, or of each of a stack of them.
struct CalibratedTensor {
  std::vector<PackedMatrix> matrices;
  std::vector<bool> is_done;
  std::uint64_t groups_a_matrix = 0;
  bool is_whole = true;  // no two matrices share a nested scale
};

class Calibration final : public Calibrator {
 public:
  Calibration(CalibrationTokens tokens, const Method& method, const CalibrateOptions& options)
      : tokens_(std::move(tokens)), method_(method), options_(options) {}

  nlohmann::json record() const override;
  void run(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options) override;
  bool has(std::size_t tensor) const noexcept override;
  void read(std::size_t tensor, std::uint64_t first, quant::PackedRows out,
            std::span<quant::ErrorStats> group_stats) const override;
  std::vector<Text> notes() const override;

 private:
  struct Place;
  class Run;

  CalibrationTokens tokens_;
  const Method& method_;
  CalibrateOptions options_;
  std::map<std::size_t, CalibratedTensor> tensors_;  // by index into the plan
  std::int64_t matrices_ = 0, searched_ = 0;         // the latter had too few tokens for the method
};

}  // namespace halfbyte::convert::calibrate

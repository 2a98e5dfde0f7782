// What a model loses by each way to store each tensor, measured: the way's own errors, met by the gradients of what
// the model predicts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <halfbyte/budget.h>

#include "convert/budget/sensitivity.h"
#include "convert/calibrate/method.h"

namespace halfbyte::convert::calibrate {

// With e the errors of a product's results and g the gradients there of the log-probability of tokens drawn from the
// model's own predictions, the KL divergence is, to second order, half the mean square of the sum of e * g: over the
// tokens of a sequence for each row, since rows are rounded independently. Sequences that no codes are chosen by.
class MeasuredSensitivity final : public Sensitivity {
 public:
  // `method`: null: codes are chosen by the weights alone, and all sequences are measured with.
  MeasuredSensitivity(std::function<CalibrationTokens()> tokens, const Method* method, SensitivityOptions options);

  std::vector<std::vector<double>> losses(const files::Checkpoint& source, std::span<const TensorWays> tensors,
                                          const QuantizeOptions& options) override;
  nlohmann::json record() const override;
  Text basis() const override;

 private:
  class Run;

  void share_out(CalibrationTokens tokens);

  std::function<CalibrationTokens()> tokens_;
  std::vector<std::vector<std::int64_t>> measured_;   // sequences that losses are measured on
  std::vector<std::vector<std::int64_t>> chosen_by_;  // and that codes are chosen by
  std::string hash_;
  const Method* method_;
  SensitivityOptions options_;
};

}  // namespace halfbyte::convert::calibrate

// The codes of a model's layers, chosen by what each is given: where they lie until they are written into the result.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <halfbyte/calibrate.h>

#include "convert/calibrate/layer_files.h"
#include "convert/calibrate/method.h"
#include "convert/calibrator.h"

namespace halfbyte::convert::calibrate {

class Calibration final : public Calibrator {
 public:
  Calibration(CalibrationTokens tokens, const Method& method, const CalibrateOptions& options)
      : tokens_(std::move(tokens)), method_(method), options_(options) {}

  nlohmann::json record() const override;
  std::uint64_t disk_bytes(const files::Checkpoint& source, const Plan& plan, bool is_shared) const override;
  void run(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options,
           const CalibrationPlace& place) override;
  bool has(std::size_t tensor) const noexcept override;
  void read(std::size_t tensor, std::uint64_t first, quant::PackedRows out,
            std::span<quant::ErrorStats> group_stats) const override;
  std::vector<Text> notes() const override;

 private:
  struct Place {
    std::int64_t layer;
    std::uint64_t begin;
  };
  // The codes of one tensor: of a matrix, or of each of a stack of them.
  struct Tensor {
    PackedLayout layout;  // of each matrix
    std::vector<std::optional<Place>> matrices;
    bool is_whole;  // no two matrices share a nested scale
  };

  void take(std::int64_t layer, const LayerRecord& record, const files::Checkpoint& source, const Plan& plan);
  std::shared_ptr<const files::DataFile> open(std::int64_t layer) const;

  CalibrationTokens tokens_;
  const Method& method_;
  CalibrateOptions options_;
  std::optional<LayerFiles> files_;
  std::map<std::size_t, Tensor> tensors_;  // by index into the plan
  std::int64_t matrices_ = 0, searched_ = 0;

  mutable std::mutex mutex_;  // of what is open
  mutable std::map<std::int64_t, std::shared_ptr<const files::DataFile>> open_;
};

}  // namespace halfbyte::convert::calibrate

// The image of an export: where each tensor goes, and what makes it, some rows of a packed one at a time.
#pragma once

#include <memory>
#include <mutex>

#include "convert/export/plan.h"
#include "convert/output/image.h"

namespace halfbyte::convert {

// Of what is quantised anew while an image is written. Thread-safe.
class ExportErrors {
 public:
  void add(const quant::ErrorStats& stats) {
    const std::lock_guard lock(mutex_);
    stats_.add(stats);
  }
  // When all is written.
  const quant::ErrorStats& stats() const noexcept { return stats_; }

 private:
  std::mutex mutex_;
  quant::ErrorStats stats_;
};

// Sharded as the source is. The source, the plan and `errors` must outlive it. `threads` as in ExportOptions. Errors:
// kUnsupported when two tensors would have one name.
Image lay_out_export(const files::Checkpoint& source, const ExportPlan& plan, int threads, ExportErrors& errors);

}  // namespace halfbyte::convert

// What the server has done, in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "models/serving/engine.h"

namespace halfbyte::server {

// Threads: any.
class Metrics {
 public:
  // Of one request, once its response has begun.
  void answered(std::string_view endpoint, int status);
  // Of one answer of the engine's.
  void ended(const serving::AnswerEnd& end);
  std::string text(const serving::EngineState& engine) const;

 private:
  // Counts of values up to each bound, and of all.
  struct Histogram {
    std::array<double, 12> bounds;
    std::array<std::int64_t, 12> counts = {};
    std::int64_t count = 0;
    double sum = 0;
    void add(double value);
    std::string text(const std::string& name, const std::string& help) const;
  };

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> responses_;
  static constexpr std::array<double, 12> kSeconds = {.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60};
  Histogram first_token_{kSeconds}, queued_{kSeconds};
  Histogram tokens_per_s_{{1, 2.5, 5, 10, 15, 20, 30, 40, 60, 100, 200, 500}};
};

}  // namespace halfbyte::server

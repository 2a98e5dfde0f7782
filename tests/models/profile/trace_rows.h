// A trace as its readers take it: whether it is one, and whether each thread's events lie in or beside each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace halfbyte::tests {

// Complete events of each thread, in the order of their beginnings, outer ones first. Throws where it is no trace.
inline std::map<int, std::vector<nlohmann::json>> trace_rows(const std::string& text) {
  std::map<int, std::vector<nlohmann::json>> out;
  const auto trace = nlohmann::json::parse(text);
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") out[event.at("tid").get<int>()].push_back(event);
  }
  for (auto& [thread, events] : out) {
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
      const double begins[] = {a.at("ts"), b.at("ts")}, lengths[] = {a.at("dur"), b.at("dur")};
      return begins[0] != begins[1] ? begins[0] < begins[1] : lengths[0] > lengths[1];
    });
  }
  return out;
}

// Units: nanoseconds, whole ones, so that nothing is lost to rounding.
inline std::int64_t begin_of(const nlohmann::json& event) {
  return std::llround(event.at("ts").get<double>() * 1000);
}
inline std::int64_t end_of(const nlohmann::json& event) {
  return begin_of(event) + std::llround(event.at("dur").get<double>() * 1000);
}

inline bool are_nested(const std::vector<nlohmann::json>& events) {
  std::vector<std::int64_t> open;  // ends
  for (const auto& event : events) {
    while (!open.empty() && open.back() <= begin_of(event)) open.pop_back();
    if (end_of(event) < begin_of(event) || (!open.empty() && end_of(event) > open.back())) return false;
    open.push_back(end_of(event));
  }
  return true;
}

}  // namespace halfbyte::tests

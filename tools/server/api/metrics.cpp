#include "tools/server/api/metrics.h"

#include <sstream>

namespace halfbyte::server {
namespace {

struct GaugeRow {
  const char *name, *type, *help;
  double (*value)(const serving::EngineState& state);
};
using State = serving::EngineState;
constexpr GaugeRow kGauges[] = {
    {"halfbyte_sequences_active", "gauge", "Answers that are being made.",
     [](const State& s) { return double(s.active); }},
    {"halfbyte_sequences_waiting", "gauge", "Requests that wait.", [](const State& s) { return double(s.waiting); }},
    {"halfbyte_sequences_total", "counter", "Answers asked for.", [](const State& s) { return double(s.requests); }},
    {"halfbyte_sequences_failed_total", "counter", "Answers that failed.",
     [](const State& s) { return double(s.failed); }},
    {"halfbyte_sequences_cancelled_total", "counter", "Answers whose clients went.",
     [](const State& s) { return double(s.cancelled); }},
    {"halfbyte_sequences_preempted_total", "counter", "Times that an answer had to wait for memory.",
     [](const State& s) { return double(s.preempted); }},
    {"halfbyte_prompt_tokens_total", "counter", "Prompt tokens that were read.",
     [](const State& s) { return double(s.prompt_tokens); }},
    {"halfbyte_cached_tokens_total", "counter", "Prompt tokens whose keys and values were there.",
     [](const State& s) { return double(s.cached_tokens); }},
    {"halfbyte_tokens_total", "counter", "Tokens of answers.", [](const State& s) { return double(s.tokens); }},
    {"halfbyte_kept_bytes", "gauge", "Memory of keys and values in use.",
     [](const State& s) { return double(s.kept_bytes); }},
    {"halfbyte_kept_limit_bytes", "gauge", "Memory that keys and values may take.",
     [](const State& s) { return double(s.kept_limit); }},
    {"halfbyte_busy_seconds_total", "counter", "Time spent in passes of the model.",
     [](const State& s) { return s.busy_s; }},
};

std::string head_of(const std::string& name, const std::string& type, const std::string& help) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string number(double value) {
  std::ostringstream out;
  out.precision(15);
  out << value;
  return out.str();
}

}  // namespace

void Metrics::Histogram::add(double value) {
  for (std::size_t i = 0; i < bounds.size(); ++i) counts[i] += value <= bounds[i];
  ++count;
  sum += value;
}

std::string Metrics::Histogram::text(const std::string& name, const std::string& help) const {
  std::string out = head_of(name, "histogram", help);
  for (std::size_t i = 0; i < bounds.size(); ++i)
    out += name + "_bucket{le=\"" + number(bounds[i]) + "\"} " + std::to_string(counts[i]) + "\n";
  out += name + "_bucket{le=\"+Inf\"} " + std::to_string(count) + "\n";
  return out + name + "_sum " + number(sum) + "\n" + name + "_count " + std::to_string(count) + "\n";
}

void Metrics::answered(std::string_view endpoint, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{std::string(endpoint), status}];
}

void Metrics::ended(const serving::AnswerEnd& end) {
  const std::lock_guard lock(mutex_);
  queued_.add(end.queued_s);
  if (end.first_token_s > 0) first_token_.add(end.first_token_s);
  if (end.tokens > 1 && end.all_s > end.first_token_s)
    tokens_per_s_.add(static_cast<double>(end.tokens - 1) / (end.all_s - end.first_token_s));
}

std::string Metrics::text(const serving::EngineState& engine) const {
  std::string out;
  for (const GaugeRow& row : kGauges)
    out += head_of(row.name, row.type, row.help) + row.name + " " + number(row.value(engine)) + "\n";
  const std::lock_guard lock(mutex_);
  out += head_of("halfbyte_responses_total", "counter", "Responses by endpoint and status.");
  for (const auto& [key, count] : responses_) {
    out += "halfbyte_responses_total{endpoint=\"" + key.first + "\",status=\"" + std::to_string(key.second) + "\"} " +
           std::to_string(count) + "\n";
  }
  out += queued_.text("halfbyte_queued_seconds", "Time that a request waited.");
  out += first_token_.text("halfbyte_first_token_seconds", "Time from a request to its first token.");
  return out + tokens_per_s_.text("halfbyte_tokens_per_second", "Tokens a second of one answer, after its first.");
}

}  // namespace halfbyte::server

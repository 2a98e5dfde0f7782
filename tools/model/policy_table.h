// What each dtype policy costs and gives on one text: accuracy against a reference, memory, speed. For
// `perplexity --policies`.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/evaluate.h>

#include "tools/model/model_options.h"

namespace halfbyte::cli {

struct PolicyTableRequest {
  ModelWords model;                   // its dtype is not looked at
  std::vector<std::string> policies;  // names, in the order of the rows
  ModelWords reference;
  TokenIds text;
  TokenIds prefix;
  PerplexityOptions options;
  std::size_t special_names = 0;  // of special tokens, in the text
};

struct PolicyRow {
  std::string policy;
  std::string problem;  // why it could not be measured; empty: it was
  PerplexityResult result = {};
  double load_seconds = 0;
  std::uint64_t mapped_bytes = 0;
  std::uint64_t own_bytes = 0;  // cast or copied
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

// The rows finished so far, for whoever must print them while others are being measured. Threads: any.
class PolicyRows {
 public:
  void add(PolicyRow row);
  std::vector<PolicyRow> finished() const;

 private:
  mutable std::mutex mutex_;
  std::vector<PolicyRow> rows_;
};

// One model beside the reference at a time. A policy that cannot be run makes a row that says why.
// Errors: those of the reference.
void measure_policies(const PolicyTableRequest& request, const CommonOptions& common, PolicyRows& rows);

void print_policy_table(const PolicyTableRequest& request, const std::vector<PolicyRow>& rows);
void print_policy_table_json(const PolicyTableRequest& request, const std::vector<PolicyRow>& rows);

}  // namespace halfbyte::cli

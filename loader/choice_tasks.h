// Multiple-choice tasks by log-likelihood, in the JSON shapes of lm-evaluation-harness.
#pragma once

#include <string>
#include <vector>

#include <halfbyte/evaluate_checkpoint.h>

#include "models/evaluation/log_likelihoods.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte {

struct ChoiceTask {
  std::string query;
  std::vector<std::string> choices;
  std::size_t gold = 0;
};

// One JSON object a line: {"query" | "ctx" | "context" | "question", "choices" | "endings", "gold" | "label" |
// "answer"}. The last is an index from 0 on, as a number or spelled. Empty lines are left out. Errors: kCorrupt naming
// the line and the field.
std::vector<ChoiceTask> read_choice_tasks(std::string_view lines, const std::string& file_name);

// As lm-evaluation-harness does it: the query's end spaces belong to the continuation, " " stands between the two, and
// what the tokens of both together have beyond those of the query is scored. Too long ones lose their beginning.
// Errors: kInvalidArgument for a choice that has no token of its own.
std::vector<models::Continuation> continuations_of(const ChoiceTask& task, const models::Tokenizer& tokenizer,
                                                   std::int64_t most_tokens);

// What a model chose.
struct TaskScore {
  std::size_t by_sum = 0;        // of the largest log-likelihood
  std::size_t by_character = 0;  // of the largest one a character (code point) of the choice
};
TaskScore score_of(const ChoiceTask& task, const std::vector<double>& log_likelihoods);

// Of all tasks. `original` may be empty.
ChoiceResult summary_of(const std::vector<ChoiceTask>& tasks, const std::vector<TaskScore>& model,
                        const std::vector<TaskScore>& original);

}  // namespace halfbyte

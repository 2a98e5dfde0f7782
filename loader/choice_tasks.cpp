#include "loader/choice_tasks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "loader/files/printable.h"
#include "models/json/field.h"

namespace halfbyte {
namespace {

constexpr files::JsonLimits kLineLimits{.max_bytes = 1'000'000, .max_depth = 8};

JsonField first_of(const JsonField& line, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const auto found = line.find(key)) return *found;
  }
  std::string wanted;
  for (const char* key : keys) wanted += (wanted.empty() ? "" : ", ") + std::string(key);
  line.fail("has none of the fields " + wanted);
}

std::size_t gold_of(const JsonField& field, std::size_t choices) {
  const auto last = static_cast<std::int64_t>(choices) - 1;
  const std::string* spelled = field.as_string();
  if (!spelled) return static_cast<std::size_t>(field.integer(0, last));
  std::int64_t value = -1;
  const char* const end = spelled->data() + spelled->size();
  const auto [stopped, error] = std::from_chars(spelled->data(), end, value);
  if (error != std::errc() || stopped != end || value < 0 || value > last)
    field.fail_wanting("the index of a choice, 0 to " + std::to_string(last));
  return static_cast<std::size_t>(value);
}

ChoiceTask task_of(const JsonField& line) {
  ChoiceTask task;
  task.query = first_of(line, {"query", "ctx", "context", "question"}).string();
  const JsonField choices = first_of(line, {"choices", "endings"});
  for (const JsonField& choice : choices.items()) task.choices.push_back(choice.string());
  if (task.choices.size() < 2) choices.fail_wanting("two choices at least");
  task.gold = gold_of(first_of(line, {"gold", "label", "answer"}), task.choices.size());
  return task;
}

// Code points of UTF-8.
double characters_of(const std::string& text) {
  const auto count = std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  return static_cast<double>(std::max<std::ptrdiff_t>(count, 1));
}

// A share of tasks, which are independent of one another.
Interval share_of(std::size_t tasks, const std::function<bool(std::size_t)>& is_so) {
  double hits = 0;
  for (std::size_t i = 0; i < tasks; ++i) hits += is_so(i) ? 1 : 0;
  const auto count = static_cast<double>(tasks);
  const double share = hits / count, reach = 1.96 * std::sqrt(share * (1 - share) / std::max(count - 1, 1.0));
  return {share, std::max(share - reach, 0.0), std::min(share + reach, 1.0)};
}

}  // namespace

std::vector<ChoiceTask> read_choice_tasks(std::string_view lines, const std::string& file_name) {
  std::vector<ChoiceTask> tasks;
  std::int64_t number = 0;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const std::string name = files::printable(file_name) + ", line " + std::to_string(++number);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto json = files::parse_json<nlohmann::json>(line, name, kLineLimits);
    tasks.push_back(task_of(JsonField(json, name)));
  }
  if (tasks.empty()) throw Error(ErrorCode::kCorrupt, files::printable(file_name) + ": has no task");
  return tasks;
}

std::vector<models::Continuation> continuations_of(const ChoiceTask& task, const models::Tokenizer& tokenizer,
                                                   std::int64_t most_tokens) {
  const std::size_t end = task.query.find_last_not_of(' ');
  const std::string query = task.query.substr(0, end == std::string::npos ? 0 : end + 1);
  const auto with_prefix = [&](const std::string& text) {
    TokenIds ids = tokenizer.prefix();
    const TokenIds own = tokenizer.encode(text, models::SpecialTokens::kAsText);
    ids.insert(ids.end(), own.begin(), own.end());
    return ids;
  };
  const std::size_t before = std::max<std::size_t>(with_prefix(query).size(), 1);
  std::vector<models::Continuation> out;
  for (const std::string& choice : task.choices) {
    TokenIds ids = with_prefix(query + task.query.substr(query.size()) + " " + choice);
    const auto count = static_cast<std::int64_t>(ids.size()) - static_cast<std::int64_t>(before);
    if (count < 1 || count >= most_tokens) {
      throw Error(ErrorCode::kInvalidArgument, "the choice " + files::in_quotes(choice) + " has " +
                                                   std::to_string(std::max<std::int64_t>(count, 0)) +
                                                   " tokens of its own; a choice needs 1 to " +
                                                   std::to_string(most_tokens - 1));
    }
    const auto size = static_cast<std::int64_t>(ids.size());
    if (size > most_tokens) ids.erase(ids.begin(), ids.begin() + (size - most_tokens));
    out.push_back({std::move(ids), count});
  }
  return out;
}

TaskScore score_of(const ChoiceTask& task, const std::vector<double>& log_likelihoods) {
  std::vector<double> by_character = log_likelihoods;
  for (std::size_t i = 0; i < by_character.size(); ++i) by_character[i] /= characters_of(task.choices[i]);
  const auto best = [](const std::vector<double>& values) {
    return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
  };
  return {best(log_likelihoods), best(by_character)};
}

ChoiceResult summary_of(const std::vector<ChoiceTask>& tasks, const std::vector<TaskScore>& model,
                        const std::vector<TaskScore>& original) {
  const std::size_t count = model.size();
  ChoiceResult out;
  out.tasks = static_cast<std::int64_t>(count);
  out.accuracy = share_of(count, [&](std::size_t i) { return model[i].by_sum == tasks[i].gold; });
  out.normalised = share_of(count, [&](std::size_t i) { return model[i].by_character == tasks[i].gold; });
  if (original.empty()) return out;
  out.original_accuracy = share_of(count, [&](std::size_t i) { return original[i].by_sum == tasks[i].gold; });
  out.original_normalised = share_of(count, [&](std::size_t i) { return original[i].by_character == tasks[i].gold; });
  out.agreement = share_of(count, [&](std::size_t i) { return original[i].by_sum == model[i].by_sum; });
  return out;
}

}  // namespace halfbyte

#include "convert/wishes.h"

#include <algorithm>
#include <string_view>

#include "convert/group_sizes.h"
#include "loader/files/printable.h"
#include "models/architectures/architecture.h"

namespace halfbyte::convert {
namespace {

using files::in_quotes;
using files::matches_pattern;
using files::StoredTensor;
using files::TensorRecord;
using models::Role;

constexpr std::string_view kKeepWord = "keep";

[[noreturn]] void invalid(const Text& message) { throw Error(ErrorCode::kInvalidArgument, message); }

const Scheme& scheme_or_fail(const std::string& name) {
  if (const Scheme* found = find_scheme(name)) return *found;
  std::string known;
  for (const Scheme& scheme : schemes()) known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  invalid("scheme " + in_quotes(name) + " is not known; known are " + known);
}

const Scheme* scheme_or_keep(const std::string& name) { return name == kKeepWord ? nullptr : &scheme_or_fail(name); }

Wish chosen(const TensorChoice& choice) {
  if (choice.scheme == kKeepWord) return {nullptr, "there is room for the original"};
  return {&scheme_or_fail(choice.scheme), {}, nullptr, choice.group_size, choice.nested_scales, true};
}

}  // namespace

bool Ask::names(const std::string& tensor, Role its_role) const {
  return role ? its_role == *role || (!tied.empty() && tensor == tied) : matches_pattern(pattern, tensor);
}

Wishes::Wishes(const files::Checkpoint& source, const QuantizeOptions& options, const Ties& ties)
    : source_(source),
      options_(options),
      ties_(ties),
      scheme_(scheme_or_fail(options.scheme.value_or(kDefaultScheme))),
      group_size_(options.group_size.value_or(scheme_.default_group)) {
  check_group_size(group_size_, scheme_);
  if (options.nested_scales && !has_part(scheme_, Part::kNestedScale))
    invalid(Option::kNestedScales + " is for nf4 and fp4; " + std::string(scheme_.name) + " has no nested scales");
  for (const auto& [pattern, scheme] : options.scheme_for) add_pattern(pattern, scheme);
  add_role(Option::kHead, Role::kHead, options.head);
  add_role(Option::kEmbedding, Role::kEmbedding, options.embedding);
  for (const std::string& pattern : options.keep) check_pattern(Option::kKeep, pattern);
  for (const auto& [pattern, scheme] : options.scheme_for) check_pattern(Option::kSchemeFor, pattern);
  check_tied();
  refuse_packed();
}

void Wishes::add_pattern(const std::string& pattern, const std::string& scheme) {
  asks_.push_back({Option::kSchemeFor + " " + pattern, scheme_or_keep(scheme), pattern});
}

void Wishes::add_role(Option option, Role role, const std::optional<std::string>& scheme) {
  if (!scheme) return;
  Ask ask{option + " " + *scheme, scheme_or_keep(*scheme), {}, role};
  if (option == Option::kHead) ask.tied = tied_embedding();
  check_role(ask, option);
  asks_.push_back(std::move(ask));
}

std::string Wishes::tied_embedding() const {
  const auto is_stored = [&](const auto& tie) { return source_.manifest.find(tie.second) != nullptr; };
  const auto tie = std::ranges::find_if(ties_, is_stored);
  return tie == ties_.end() ? "" : tie->second;
}

void Wishes::check_tied() const {
  const std::string embedding = tied_embedding();
  if (embedding.empty() || !options_.embedding || !options_.head || *options_.embedding == *options_.head) return;
  invalid(Option::kEmbedding + " " + *options_.embedding + " and " + Option::kHead + " " + *options_.head +
          ": the head of this model is its embedding (" + embedding + "), one tensor; ask for one scheme");
}

void Wishes::check_role(const Ask& ask, Option option) const {
  const auto is_named = [&](const TensorRecord& record) {
    return ask.names(record.name, models::role_of(source_.architecture, record.name, record.shape));
  };
  if (std::ranges::any_of(source_.manifest.tensors, is_named)) return;
  invalid(ask.what + ": no tensor of " + files::printable_path(source_.directory) + " is known to be " +
          (option == Option::kHead ? "an output head" : "an embedding"));
}

void Wishes::check_pattern(Option option, const std::string& pattern) const {
  const auto matches = [&](const std::string& name) { return matches_pattern(pattern, name); };
  if (std::ranges::any_of(source_.tensors, matches, &StoredTensor::name)) return;
  if (std::ranges::any_of(source_.manifest.tensors, matches, &TensorRecord::name)) return;
  for (const auto& [alias, owner] : ties_) {
    if (!matches(alias)) continue;
    if (option == Option::kKeep) return;
    invalid(option + " " + in_quotes(pattern) + " names " + alias + ", which is tied to " + owner +
            ": it has no weights of its own; " + Option::kEmbedding + " is for both");
  }
  invalid(option + " " + in_quotes(pattern) + " matches no tensor of " + files::printable_path(source_.directory));
}

// What is packed already keeps its codes: whoever asks for it asks in vain.
void Wishes::refuse_packed() {
  for (const TensorRecord& record : source_.manifest.tensors) {
    if (!record.scheme || !options_.keep_packed) continue;
    const Role role = models::role_of(source_.architecture, record.name, record.shape);
    for (Ask& ask : asks_) {
      if (ask.scheme && ask.names(record.name, role))
        refuse({nullptr, {}, &ask}, record.name,
               "it is " + std::string(record.scheme->name) + " already and keeps its codes");
    }
  }
}

Wish Wishes::of(const std::string& name, Role role) {
  for (const std::string& pattern : options_.keep) {
    if (matches_pattern(pattern, name)) return {nullptr, "matched " + Option::kKeep + " " + pattern};
  }
  Wish out{&scheme_, {}, nullptr, group_size_};
  if (const auto choice = options_.choices.find(name); choice != options_.choices.end()) {
    out = chosen(choice->second);
  } else if (options_.only_choices) {
    const auto kept = source_.manifest.kept.find(name);
    return {nullptr, kept == source_.manifest.kept.end() ? "it was not packed before" : kept->second};
  }
  for (Ask& ask : asks_) {
    if (!ask.names(name, role)) continue;
    out = {ask.scheme, {}, &ask, group_size_};
    if (!ask.scheme) out = {nullptr, "matched " + ask.what + (ask.role ? "" : "=keep")};
  }
  return out;
}

void Wishes::refuse(const Wish& wish, const std::string& name, const Text& reason) {
  if (wish.asked && wish.asked->refusal.empty()) wish.asked->refusal = in_quotes(name) + ": " + reason;
}

void Wishes::check_granted() const {
  for (const Ask& ask : asks_) {
    if (ask.is_granted || ask.refusal.empty()) continue;
    throw Error(ErrorCode::kUnsupported, ask.what + " names nothing that can be quantised; " + ask.refusal);
  }
}

std::vector<Text> Wishes::notes() const {
  std::vector<Text> out;
  const std::string embedding = tied_embedding();
  for (const Ask& ask : asks_) {
    const bool is_of_both =
        ask.role && !embedding.empty() && options_.embedding.has_value() != options_.head.has_value();
    if (is_of_both && ask.is_granted)
      out.push_back(ask.what + " is for the embedding and the head: in this model they are one tensor (" + embedding +
                    ")");
  }
  return out;
}

}  // namespace halfbyte::convert

#include "convert/embedding_advice.h"

#include <algorithm>
#include <cstdint>

#include "loader/files/derive.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using models::Role;

// Loses next to nothing, and is half of 16 bits: docs/budget.md has it beside others.
constexpr const char* kAdvisedScheme = "sym_int8";
constexpr std::uint64_t kLeastShare = 5;  // a fifth

// Of what stays dense and may be packed. Units: bytes.
struct Share {
  std::uint64_t now = 0, then = 0;

  void add(const Share& other) {
    now += other.now;
    then += other.then;
  }
};

class Advice {
 public:
  Advice(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options)
      : plan_(plan), options_(options), is_tied_(is_tied(source)) {
    const bool has_word = options.embedding || (is_tied_ && options.head);
    QuantizeOptions advised = options;
    advised.halfbyte_only = true;
    if (!has_word && is_dense(Role::kEmbedding)) advised.embedding = kAdvisedScheme;
    if (!options.head && is_dense(Role::kHead)) advised.head = kAdvisedScheme;
    if (advised.embedding == options.embedding && advised.head == options.head) return;
    const Plan then = convert::plan(source, advised);
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) add(plan.tensors[i], then.tensors[i]);
  }

  Text line() const {
    Share both = embedding_;
    both.add(head_);
    if (both.now == 0 || kLeastShare * both.now < plan_.bytes_after) return {};
    return subject() + " " + files::printable_bytes(both.now) + " of " + files::printable_bytes(plan_.bytes_after) +
           "; " + cure() + " makes that " + files::printable_bytes(both.then) + readers();
  }

 private:
  static bool is_tied(const files::Checkpoint& source) {
    return std::ranges::any_of(files::declared_ties(source),
                               [&](const auto& tie) { return source.find(tie.second) != nullptr; });
  }

  bool is_dense(Role role) const {
    return std::ranges::any_of(plan_.tensors, [&](const PlannedTensor& planned) {
      return planned.role == role && !planned.scheme && planned.tied_to.empty() && planned.part_of.empty();
    });
  }

  void add(const PlannedTensor& now, const PlannedTensor& then) {
    if (now.scheme || !then.scheme) return;
    (now.role == Role::kHead ? head_ : embedding_).add({now.bytes_after, then.bytes_after});
  }

  std::string subject() const {
    if (embedding_.now == 0) return "the output head is";
    if (head_.now > 0) return "the embedding and the output head are";
    return is_tied_ ? "the embedding, which is the output head too, is" : "the embedding is";
  }

  Text cure() const {
    Text out = head_.now > 0 ? Option::kHead + " " + kAdvisedScheme : Text();
    if (embedding_.now == 0) return out;
    if (!out.empty()) out += " ";
    out += Option::kEmbedding + " " + kAdvisedScheme;
    return options_.halfbyte_only ? out : out + " " + Option::kHalfbyteOnly;
  }

  Text readers() const {
    if (embedding_.now == 0 || !plan_.has_foreign_readers) return {};
    const Text alone = ", which halfbyte alone reads";
    return head_.now > 0 ? alone + "; without " + Option::kEmbedding + " others do too" : alone;
  }

  const Plan& plan_;
  const QuantizeOptions& options_;
  bool is_tied_;
  Share embedding_, head_;
};

}  // namespace

Text embedding_advice(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options) try {
  const auto is_packed = [](const PlannedTensor& planned) { return planned.scheme != nullptr; };
  return std::ranges::any_of(plan.tensors, is_packed) ? Advice(source, plan, options).line() : Text();
} catch (const Error& error) {
  if (error.code() != ErrorCode::kUnsupported) throw;
  return {};  // they cannot be packed
}

}  // namespace halfbyte::convert

#include "convert/budget/decide.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "convert/budget/candidates.h"
#include "convert/budget/knapsack.h"
#include "convert/budget/sensitivity.h"
#include "loader/files/printable.h"

namespace halfbyte::convert::budget {
namespace {

constexpr const char* kKeep = "keep";

std::string with_decimals(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::uint64_t weights_of(const files::StoredTensor& tensor) {
  std::uint64_t out = 1;
  for (const std::int64_t length : tensor.shape) out *= static_cast<std::uint64_t>(length);
  return out;
}

std::string stored_as(const PlannedTensor& way) {
  return std::string(way.scheme->name) + " g" + std::to_string(way.group_size);
}

std::string stored_as(const Candidate& candidate) {
  return candidate.scheme +
         (candidate.group_size == kPerChannel ? " channel" : " g" + std::to_string(candidate.group_size));
}

// What the options ask for where no target is.
QuantizeOptions without_target(const QuantizeOptions& options) {
  QuantizeOptions out = options;
  out.target_bpw = 0;
  out.target_size = 0;
  out.choices.clear();
  out.halfbyte_only = true;  // who may read the mix is asked of the mix
  return out;
}

Plan plan_of(const files::Checkpoint& source, const QuantizeOptions& options, const Candidate& candidate) {
  QuantizeOptions all = without_target(options);
  all.scheme = candidate.scheme;
  all.group_size = candidate.group_size;
  all.nested_scales = options.nested_scales && has_part(*find_scheme(candidate.scheme), Part::kNestedScale);
  return plan(source, all);
}

class Decider {
 public:
  Decider(const files::Checkpoint& source, QuantizeOptions& options)
      : source_(source), options_(options), candidates_(candidates(options)) {
    const Plan base = plan(source, without_target(options));
    std::vector<Plan> plans;
    for (const Candidate& candidate : candidates_) plans.push_back(plan_of(source, options, candidate));
    rest_bytes_ = base.bytes_after;
    for (std::size_t i = 0; i < base.tensors.size(); ++i) {
      if (!base.tensors[i].scheme || !base.tensors[i].tied_to.empty() || is_apart(base.tensors[i])) continue;
      rest_bytes_ -= base.tensors[i].bytes_after;
      add(base.tensors[i], plans, i);
    }
    if (tensors_.empty())
      throw Error(ErrorCode::kInvalidArgument, "no tensor is quantised, so there is nothing to choose for " + target());
  }

  void run() {
    const std::uint64_t budget = this->budget();
    const Losses losses = options_.sensitivity->losses(source_, tensors_, options_);
    record(losses, *pick(items(losses), budget));
  }

 private:
  using Losses = std::vector<std::vector<double>>;  // by tensor, then by way

  // One tensor of the plan without a target.
  void add(const PlannedTensor& planned, const std::vector<Plan>& plans, std::size_t index) {
    const files::StoredTensor& tensor = source_.tensors[planned.source];
    weights_ += weights_of(tensor);
    TensorWays ways{planned.source, {}};
    std::vector<std::size_t> from;
    const bool is_fixed = is_asked_for(tensor.name);
    if (is_fixed) ways.ways.push_back(planned);
    for (std::size_t i = 0; i < plans.size() && !is_fixed; ++i) {
      const PlannedTensor& way = plans[i].tensors[index];
      const auto is_same = [&](const PlannedTensor& other) {
        return other.scheme == way.scheme && other.group_size == way.group_size;
      };
      if (!way.scheme || std::ranges::any_of(ways.ways, is_same)) continue;
      ways.ways.push_back(way);
      from.push_back(i);
    }
    tensors_.push_back(std::move(ways));
    from_.push_back(std::move(from));
    is_fixed_.push_back(is_fixed);
  }

  bool is_asked_for(const std::string& name) const {
    return std::ranges::any_of(options_.scheme_for,
                               [&](const auto& pair) { return files::matches_pattern(pair.first, name); });
  }

  // Neither chosen for nor counted: what is asked for by its role.
  bool is_apart(const PlannedTensor& planned) const {
    return planned.role == models::Role::kEmbedding || (planned.role == models::Role::kHead && options_.head);
  }

  const files::StoredTensor& stored(std::size_t i) const { return source_.tensors[tensors_[i].tensor]; }

  Text target() const {
    return options_.target_bpw > 0 ? Option::kTargetBpw + " " + with_decimals(options_.target_bpw, 2)
                                   : Option::kTargetSize + " " + files::printable_bytes(options_.target_size);
  }

  // The bytes in the target's own unit.
  std::string in_target(std::uint64_t bytes) const {
    if (options_.target_size > 0) return files::printable_bytes(bytes + rest_bytes_);
    // Rounded so that what a message asks for is enough.
    const double bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(weights_);
    return with_decimals(std::ceil(bits * 1000) / 1000, 3) + " bits a weight";
  }

  // Of the tensors that it is about. Errors: kInvalidArgument.
  std::uint64_t budget() const {
    std::uint64_t out = 0;
    if (options_.target_bpw > 0)
      out = static_cast<std::uint64_t>(options_.target_bpw / 8 * static_cast<double>(weights_));
    else
      out = options_.target_size > rest_bytes_ ? options_.target_size - rest_bytes_ : 0;
    Losses none;
    for (const TensorWays& tensor : tensors_) none.emplace_back(tensor.ways.size(), 0.0);
    const std::uint64_t least = least_bytes(items(none));
    if (out < least) {
      throw Error(ErrorCode::kInvalidArgument,
                  target() + " cannot be met: the smallest mix of these schemes takes " + in_target(least));
    }
    std::uint64_t original = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) original += stored(i).size_bytes;
    if (out >= original) {
      throw Error(ErrorCode::kInvalidArgument,
                  target() + " needs no quantising: the original takes " + in_target(original));
    }
    return out;
  }

  // The ways of each tensor, then the original where it may be left.
  std::vector<Item> items(const Losses& losses) const {
    std::vector<Item> out(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      for (std::size_t way = 0; way < tensors_[i].ways.size(); ++way)
        out[i].push_back({tensors_[i].ways[way].bytes_after, losses[i][way]});
      if (!is_fixed_[i]) out[i].push_back({stored(i).size_bytes, 0.0});
    }
    return out;
  }

  void record(const Losses& losses, const std::vector<std::size_t>& picks) {
    Mix mix{.target_bpw = options_.target_bpw,
            .target_size = options_.target_size,
            .weights = weights_,
            .basis = options_.sensitivity->basis(),
            .measured = models::HeldJson(options_.sensitivity->record())};
    for (const Candidate& candidate : candidates_) mix.rows.push_back(row_of(candidate, losses));
    mix.rows.push_back({.stored_as = "original", .bits_of_all = original_bits()});
    for (std::size_t i = 0; i < picks.size(); ++i) choose(i, picks[i], losses[i], mix);
    std::ranges::stable_sort(mix.rows, {}, &MixRow::bits_of_all);
    options_.mix = std::make_shared<const Mix>(std::move(mix));
  }

  void choose(std::size_t i, std::size_t pick, const std::vector<double>& losses, Mix& mix) {
    const bool is_kept = pick == tensors_[i].ways.size();
    const std::uint64_t bytes = is_kept ? stored(i).size_bytes : tensors_[i].ways[pick].bytes_after;
    const double loss = is_kept ? 0 : losses[pick];
    mix.bytes += bytes;
    mix.loss += loss;
    MixRow& row = is_kept ? mix.rows.back() : row_with(mix, i, pick);
    ++row.tensors;
    row.weights += weights_of(stored(i));
    row.bytes += bytes;
    row.loss += loss;
    std::vector<WayLoss>& ways = mix.ways[stored(i).name];
    for (std::size_t way = 0; way < losses.size(); ++way)
      ways.push_back({stored_as(tensors_[i].ways[way]), tensors_[i].ways[way].bytes_after, losses[way]});
    if (is_fixed_[i]) return;
    const std::string& name = stored(i).name;
    if (is_kept)
      options_.choices[name] = {kKeep};
    else
      options_.choices[name] = {candidates_[from_[i][pick]].scheme, candidates_[from_[i][pick]].group_size};
  }

  // What was asked for by name may be none of the candidates.
  MixRow& row_with(Mix& mix, std::size_t i, std::size_t pick) {
    const std::string name =
        is_fixed_[i] ? stored_as(tensors_[i].ways[pick]) + ", as asked" : stored_as(candidates_[from_[i][pick]]);
    const auto found = std::ranges::find(mix.rows, name, &MixRow::stored_as);
    if (found != mix.rows.end()) return *found;
    return *mix.rows.insert(mix.rows.end() - 1, {.stored_as = name});
  }

  MixRow row_of(const Candidate& candidate, const Losses& losses) const {
    MixRow out{.stored_as = stored_as(candidate)};
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto way = static_cast<std::size_t>(way_of(i, candidate));
      bytes += tensors_[i].ways[way].bytes_after;
      out.loss_of_all += losses[i][way];
    }
    out.bits_of_all = 8.0 * static_cast<double>(bytes) / static_cast<double>(weights_);
    return out;
  }

  // The tensor's way that a candidate came to: its own, or that of one before that came to the same.
  std::size_t way_of(std::size_t i, const Candidate& candidate) const {
    const auto number = static_cast<std::size_t>(&candidate - candidates_.data());
    const auto after = std::ranges::upper_bound(from_[i], number);
    return after == from_[i].begin() ? 0 : static_cast<std::size_t>(after - from_[i].begin()) - 1;
  }

  double original_bits() const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) bytes += stored(i).size_bytes;
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights_);
  }

  const files::Checkpoint& source_;
  QuantizeOptions& options_;
  std::vector<Candidate> candidates_;
  std::vector<TensorWays> tensors_;
  std::vector<std::vector<std::size_t>> from_;  // the candidate that each way comes from
  std::vector<bool> is_fixed_;
  std::uint64_t weights_ = 0;
  std::uint64_t rest_bytes_ = 0;  // of what the target is not about
};

}  // namespace

void decide(const files::Checkpoint& source, QuantizeOptions& options) {
  if (options.target_bpw > 0 && options.target_size > 0)
    throw Error(ErrorCode::kInvalidArgument,
                Option::kTargetBpw + " and " + Option::kTargetSize + " exclude each other");
  if (!options.sensitivity)
    throw Error(ErrorCode::kInvalidArgument,
                Option::kTargetBpw + " and " + Option::kTargetSize +
                    " need to know what each tensor's errors cost: there is no sensitivity");
  Decider(source, options).run();
}

}  // namespace halfbyte::convert::budget

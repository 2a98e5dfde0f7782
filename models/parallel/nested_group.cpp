#include <halfbyte/nested_group.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/error.h>

#include "models/parallel/framed.h"

namespace halfbyte {
namespace {

class NestedGroup : public Group {
 public:
  NestedGroup(std::shared_ptr<Group> whole, std::shared_ptr<Group> local)
      : whole_(std::move(whole)), local_(std::move(local)), first_(whole_->rank() - local_->rank()) {
    if (local_->rank() > 0) return;
    std::vector<int> firsts;
    for (int rank = 0; rank < whole_->size(); rank += local_->size()) firsts.push_back(rank);
    firsts_ = whole_->part(firsts);
  }

  int rank() const noexcept override { return whole_->rank(); }
  int size() const noexcept override { return whole_->size(); }

  void sum(std::span<float> values) override { sum(values, &Group::sum); }
  void sum_rounded(std::span<float> values) override { sum(values, &Group::sum_rounded); }

  std::vector<std::string> gather(const std::string& text) override {
    std::vector<std::string> own;
    here([&] { own = local_->gather(text); });
    std::string all;
    if (firsts_) between([&] { all = models::framed(firsts_->gather(models::framed(own))); });
    here([&] { all = local_->gather(all).front(); });
    std::vector<std::string> out;
    for (const std::string& machine : models::unframed(all)) {
      for (std::string& each : models::unframed(machine)) out.push_back(std::move(each));
    }
    return out;
  }

  void send(std::span<const float> values, int to) override {
    if (is_here(to))
      here([&] { local_->send(values, to - first_); });
    else
      whole_->send(values, to);
  }
  void receive(std::span<float> values, int from) override {
    if (is_here(from))
      here([&] { local_->receive(values, from - first_); });
    else
      whole_->receive(values, from);
  }

  std::shared_ptr<Group> part(const std::vector<int>& ranks) override {
    if (!std::ranges::all_of(ranks, [&](int rank) { return is_here(rank); })) return whole_->part(ranks);
    std::vector<int> here;
    for (const int rank : ranks) here.push_back(rank - first_);
    return local_->part(here);
  }

 private:
  void sum(std::span<float> values, void (Group::*between_machines)(std::span<float>)) const {
    here([&] { local_->sum(values); });
    if (firsts_)
      between([&] { (*firsts_.*between_machines)(values); });
    else
      std::ranges::fill(values, 0.0f);
    here([&] { local_->sum(values); });  // which tells the others, and all the same bits
  }

  // Those of this machine are counted from its first one on there.
  template <class Work>
  void here(const Work& work) const {
    try {
      work();
    } catch (const Error& error) {
      throw Error(error.code(), "of this machine's ranks, " + std::to_string(first_) + " to " +
                                    std::to_string(first_ + local_->size() - 1) + ": " + error.what());
    }
  }
  // Who is waited for may wait for another of its machine.
  template <class Work>
  static void between(const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      throw Error(error.code(), std::string(error.what()) + " (or for another rank of its machine)");
    }
  }

  bool is_here(int rank) const { return rank >= first_ && rank < first_ + local_->size(); }

  std::shared_ptr<Group> whole_, local_;
  int first_;                      // of this machine's
  std::shared_ptr<Group> firsts_;  // each machine's first rank; null in the others
};

}  // namespace

std::shared_ptr<Group> nested_group(std::shared_ptr<Group> whole, std::shared_ptr<Group> local) {
  const bool fits = local->size() > 0 && whole->size() % local->size() == 0 &&
                    whole->rank() % local->size() == local->rank() && local->size() > 1;
  if (!fits) {
    throw Error(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(whole->rank()) + " of " + std::to_string(whole->size()) + " cannot be rank " +
                    std::to_string(local->rank()) + " of " + std::to_string(local->size()) + " of its machine");
  }
  return std::make_shared<NestedGroup>(std::move(whole), std::move(local));
}

}  // namespace halfbyte

// A group that does what another one does: what tests change or note of it they override.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/group.h>

namespace halfbyte::tests {

class ForwardingGroup : public Group {
 public:
  explicit ForwardingGroup(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  void sum(std::span<float> values) override { group_->sum(values); }
  std::vector<std::string> gather(const std::string& text) override { return group_->gather(text); }
  void send(std::span<const float> values, int to) override { group_->send(values, to); }
  void receive(std::span<float> values, int from) override { group_->receive(values, from); }
  std::shared_ptr<Group> part(const std::vector<int>& ranks) override { return group_->part(ranks); }

 private:
  std::shared_ptr<Group> group_;
};

}  // namespace halfbyte::tests

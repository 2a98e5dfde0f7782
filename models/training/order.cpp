#include "models/training/order.h"

#include <numeric>
#include <utility>

namespace halfbyte::training {

Order::Order(std::size_t count, std::uint64_t seed) : random_(seed), indices_(count) {
  std::iota(indices_.begin(), indices_.end(), std::size_t{0});
}

std::size_t Order::next() {
  if (at_ == 0) shuffle();
  return indices_[std::exchange(at_, (at_ + 1) % indices_.size())];
}

void Order::shuffle() {  // std::shuffle is another in every library
  for (std::size_t i = indices_.size(); i > 1; --i) std::swap(indices_[i - 1], indices_[random_() % i]);
}

}  // namespace halfbyte::training

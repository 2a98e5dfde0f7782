// In which order sequences are learnt from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace halfbyte::training {

// All of `count` (1 at least) once, in an order of the seed's, before any comes again.
class Order {
 public:
  Order(std::size_t count, std::uint64_t seed);
  std::size_t next();

 private:
  void shuffle();

  std::mt19937_64 random_;
  std::vector<std::size_t> indices_;
  std::size_t at_ = 0;
};

}  // namespace halfbyte::training

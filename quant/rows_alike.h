// Products whose rows are, bit for bit, what each row gives alone.
#pragma once

#include <utility>

namespace halfbyte::quant {

// While one lives, products of its thread of up to kDirectRows rows of input read each weight row where it lies, also
// where unpacking it would be faster: a row's result then does not depend on how many rows there are. For passes whose
// choices must be those of passes of one token.
class RowsAlike {
 public:
  RowsAlike() noexcept : before_(std::exchange(is_wanted_, true)) {}
  ~RowsAlike() { is_wanted_ = before_; }
  RowsAlike(const RowsAlike&) = delete;
  RowsAlike& operator=(const RowsAlike&) = delete;

  static bool is_wanted() noexcept { return is_wanted_; }

 private:
  static thread_local bool is_wanted_;
  bool before_;
};

}  // namespace halfbyte::quant

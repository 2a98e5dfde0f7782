// Products and attention whose rows are, bit for bit, what each row gives in a pass of any other size.
#pragma once

#include <utility>

namespace halfbyte::quant {

// What a thread's products and attention take their rows of input to be. What is fastest depends on how many there are,
// and with the way sums are rounded otherwise.
enum class RowsKind {
  kCounted,  // as many as there are: the fastest way
  kFew,      // up to kDirectRows rows: each weight row is read where it lies, as for one row
  kMany,     // weights are unpacked into tiles, and keys turned, also where few rows come
};

// While one lives, its thread's rows are of that kind. For texts that must be the same however passes are divided:
// tokens that are chosen one by one are few, those of a prompt are many.
class RowsAlike {
 public:
  explicit RowsAlike(RowsKind kind = RowsKind::kFew) noexcept : before_(std::exchange(kind_, kind)) {}
  ~RowsAlike() { kind_ = before_; }
  RowsAlike(const RowsAlike&) = delete;
  RowsAlike& operator=(const RowsAlike&) = delete;

  static RowsKind kind() noexcept { return kind_; }

 private:
  static thread_local RowsKind kind_;
  RowsKind before_;
};

}  // namespace halfbyte::quant

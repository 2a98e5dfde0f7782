#include "models/sessions/pass_watch.h"

#include <algorithm>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

constinit thread_local PassWatch* innermost = nullptr;
constinit thread_local std::int64_t part = 0, parts = 1;
constinit thread_local PassWatch::Whole* whole = nullptr;

// Fewer rows than this cost more to unpack the weights for than to multiply.
constexpr std::int64_t kLeastRows = 64;

}  // namespace

PassWatch::PassWatch(std::stop_token stop, Progress progress, std::int64_t products, std::function<void()> look)
    : stop_(std::move(stop)),
      progress_(std::move(progress)),
      products_(products),
      look_(std::move(look)),
      outer_(std::exchange(innermost, this)) {}

PassWatch::~PassWatch() { innermost = outer_; }

void PassWatch::check() {
  if (!innermost) return;
  if (!whole && innermost->stop_.stop_requested()) throw Error(ErrorCode::kInterrupted, "stopped");
  if (innermost->look_) innermost->look_();
}

bool PassWatch::is_there() noexcept { return innermost != nullptr && !whole; }

void PassWatch::layer_done(std::int64_t done, std::int64_t layers) {
  if (!innermost || !innermost->progress_ || (whole && whole->thrown_)) return;
  try {
    innermost->progress_(part * layers + done, parts * layers);
  } catch (...) {
    if (!whole) throw;
    whole->thrown_ = std::current_exception();
  }
}

PassWatch::Whole::Whole() noexcept : before_(std::exchange(whole, this)) {}
PassWatch::Whole::~Whole() { whole = before_; }

bool PassWatch::Whole::is_there() noexcept { return whole != nullptr; }

PassWatch::Part::Part(std::int64_t index, std::int64_t count) noexcept {
  part = index;
  parts = count;
}

PassWatch::Part::~Part() {
  part = 0;
  parts = 1;
}

std::int64_t PassWatch::products_between_looks() noexcept { return innermost ? innermost->products_ : kProducts; }

std::int64_t rows_between_looks(std::int64_t rows, std::int64_t products) {
  const std::int64_t most =
      std::max(kLeastRows, PassWatch::products_between_looks() / std::max<std::int64_t>(products, 1));
  if (rows <= most) return rows;
  const std::int64_t slices = (rows + most - 1) / most;
  const std::int64_t even = (rows + slices - 1) / slices;
  return (even + kLeastRows - 1) / kLeastRows * kLeastRows;
}

}  // namespace halfbyte::models

// Who looks on while a thread runs passes: whether they are to stop, and how far they are. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <stop_token>
#include <utility>

namespace halfbyte::models {

// For passes of this thread while it lives; the innermost one is asked.
class PassWatch {
 public:
  using Progress = std::function<void(std::int64_t done, std::int64_t layers)>;
  // Multiplications from one look at the stop token to the next: 0.1 s for two slow cores.
  static constexpr std::int64_t kProducts = std::int64_t{6} << 30;

  // `progress` is called after each layer of a pass, with how many of them are done; `look` at each look at the stop
  // token.
  explicit PassWatch(std::stop_token stop, Progress progress = {}, std::int64_t products = kProducts,
                     std::function<void()> look = {});
  ~PassWatch();
  PassWatch(const PassWatch&) = delete;
  PassWatch& operator=(const PassWatch&) = delete;

  // What a pass calls between parts that take long, and not from other threads. Errors: kInterrupted when it is to
  // stop.
  static void check();
  static bool is_there() noexcept;  // in this thread
  static void layer_done(std::int64_t done, std::int64_t layers);
  static std::int64_t products_between_looks() noexcept;

  // Passes of this thread are not asked to stop while it lives, but say how far they are: others take part in them,
  // which what `progress` throws is not to break off. It is not told more from then on.
  class Whole {
   public:
    Whole() noexcept;
    ~Whole();
    Whole(const Whole&) = delete;
    Whole& operator=(const Whole&) = delete;

    static bool is_there() noexcept;                       // in this thread
    std::exception_ptr thrown() const { return thrown_; }  // by `progress`; null: nothing

   private:
    Whole* before_;
    std::exception_ptr thrown_;
    friend PassWatch;
  };

  // Passes of this thread while it lives are one of `count` equal parts of what their progress is told as.
  class Part {
   public:
    Part(std::int64_t index, std::int64_t count) noexcept;
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
  };

 private:
  std::stop_token stop_;
  Progress progress_;
  std::int64_t products_;
  std::function<void()> look_;
  PassWatch* outer_;
};

// Rows of a product to compute between two looks at the watch, where a row takes `products` multiplications: slices are
// nearly equal, and not so small that unpacking the weights for each would count. At most `rows`.
std::int64_t rows_between_looks(std::int64_t rows, std::int64_t products);

}  // namespace halfbyte::models

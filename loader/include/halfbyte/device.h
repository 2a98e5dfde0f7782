// Where a model's tensors are put after loading. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace halfbyte {

class Device {
 public:
  enum class Kind : std::uint8_t {
    kCpu,
    kCuda,  // NVIDIA; AMD where LibTorch is built with ROCm
    kXpu,   // Intel
    kMps,   // Apple
    kMeta,  // shapes and dtypes without values
    kBest,  // the first of CUDA, XPU and MPS that is there and works, else the CPU
  };

  constexpr Device() = default;  // the CPU
  constexpr explicit Device(Kind kind, int index = 0) : kind_(kind), index_(index) {}
  // "auto", "cpu", "cuda", "cuda:1", "xpu", "xpu:1", "mps", "meta". Errors: kInvalidArgument.
  static Device parse(std::string_view text);

  Kind kind() const noexcept { return kind_; }
  int index() const noexcept { return index_; }
  bool is_cpu() const noexcept { return kind_ == Kind::kCpu; }
  std::string name() const;  // "cuda:0"

  friend bool operator==(const Device&, const Device&) = default;

 private:
  Kind kind_ = Kind::kCpu;
  int index_ = 0;
};

}  // namespace halfbyte

// Which dtype every floating parameter and buffer has after loading, and in which dtype products are computed.
// One object decides it; the modules obey. Needs no LibTorch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <halfbyte/dtype.h>

namespace halfbyte {

class DtypePolicy {
 public:
  enum class Kind {
    kAmp,       // products in the amp dtype; residual stream, norms, rotary, softmax and logits in float32
    kExplicit,  // every floating parameter and buffer, and all arithmetic, in one dtype
    kOriginal,  // every tensor as recorded; arithmetic in the promotion of the dtypes that meet
  };

  // Errors: kInvalidArgument unless bfloat16 or float16.
  static DtypePolicy amp(Dtype dtype = Dtype::kBfloat16);
  static DtypePolicy half() { return {Kind::kExplicit, Dtype::kFloat16}; }
  static DtypePolicy bfloat16() { return {Kind::kExplicit, Dtype::kBfloat16}; }
  static DtypePolicy float32() { return {Kind::kExplicit, Dtype::kFloat32}; }
  static DtypePolicy original() { return {Kind::kOriginal, Dtype::kFloat32}; }
  // "amp", "amp:bfloat16", "amp:float16", "half", "float16", "bfloat16", "float32", "original".
  // Errors: kInvalidArgument.
  static DtypePolicy parse(std::string_view text);

  Kind kind() const noexcept { return kind_; }
  bool is_amp() const noexcept { return kind_ == Kind::kAmp; }
  bool is_original() const noexcept { return kind_ == Kind::kOriginal; }
  // Dtype of the operands of linear and attention products; nothing: as recorded, promoted where two meet.
  std::optional<Dtype> operand() const noexcept { return is_original() ? std::nullopt : std::optional(dtype_); }
  // Dtype of the residual stream and of what lies between products; nothing: as for operands.
  std::optional<Dtype> stream() const noexcept { return is_amp() ? Dtype::kFloat32 : operand(); }
  std::string name() const;

  friend bool operator==(const DtypePolicy&, const DtypePolicy&) = default;

 private:
  DtypePolicy(Kind kind, Dtype dtype) : kind_(kind), dtype_(dtype) {}
  Kind kind_;
  Dtype dtype_;  // kOriginal: of no meaning, always the same
};

}  // namespace halfbyte

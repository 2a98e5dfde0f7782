// Tensors on record as values of one dtype: the only place where numbers become dense, whatever is written from them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <halfbyte/text.h>

#include "convert/output/image.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::convert {

// What a tensor's values become.
struct DenseTarget {
  const files::TensorRecord* record;
  Dtype dtype;                        // float32, float16 or bfloat16
  bool must_be_finite = false;        // a weight
  std::optional<Dtype> through = {};  // values are rounded to it first
  Text remedy = {};                   // what a user may do about a value that is too large; empty: what holds it
  // A packed stack of experts whose family's dense ones hold columns: what dense_part() writes.
  bool is_turned = false;

  std::vector<std::int64_t> shape() const;  // of what is written
};

// With `through` where the checkpoint's own program rounds: bitsandbytes dequantises to the dtype on record, so that in
// a wider one its values are still those.
DenseTarget dense_target(const files::Checkpoint& source, const files::TensorRecord& record, Dtype dtype);

// Values [first, first + values.size()) of the tensor, each rounded once (twice with `through`), to nearest even. What
// the dtype would make infinite is cut to its largest value where the tensor was of that dtype, and the value is no
// more than quantising makes of one. `values` are changed by `through`. Errors: kUnsupported naming tensor, value and
// place of any other finite value that the dtype would make infinite; kCorrupt, likewise, of a weight that is infinite
// or NaN before, which what is none may be.
void round_values(const DenseTarget& target, std::int64_t first, std::span<float> values, std::byte* out);

// Errors: kUnsupported saying that value `index` of the tensor is too large for `type`.
[[noreturn]] void fail_too_large(const files::TensorRecord& record, std::int64_t index, float value,
                                 std::string_view type, const Text& remedy);

class DenseReader {
 public:
  DenseReader(const files::Checkpoint& source, const DenseTarget& target)
      : target_(target), reader_(source, *target.record) {}

  std::int64_t size() const noexcept { return reader_.size(); }          // Units: values
  std::int64_t row_size() const noexcept { return reader_.row_size(); }  // read() takes multiples of it
  // `count` values from `begin` on, in the dtype. Errors: as round_values().
  void read(std::int64_t begin, std::int64_t count, std::byte* out);

 private:
  DenseTarget target_;
  files::TensorReader reader_;
  std::vector<float> values_;
};

// A record of an image that is one dense tensor. The checkpoint must outlive it.
std::shared_ptr<const ImageSource> dense_part(const files::Checkpoint& source, const DenseTarget& target);

}  // namespace halfbyte::convert

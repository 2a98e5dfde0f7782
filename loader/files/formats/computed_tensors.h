// Tensors of a checkpoint in another layout, replaced one by one by packed ones of halfbyte's or by their values, with
// the records of both. For readers whose sources lie in several files.
#pragma once

#include <set>

#include "loader/files/translation.h"

namespace halfbyte::files {

// In the layout of compressed-tensors.
struct PackedBytes {
  std::unique_ptr<TensorBytes> codes;
  std::unique_ptr<TensorBytes> scales;
  std::unique_ptr<TensorBytes> zero_points;  // null: the scheme has none
};

class ComputedTensors {
 public:
  // The checkpoint must outlive this, and is as it was until finish().
  explicit ComputedTensors(Checkpoint& checkpoint);

  // `file` of all: index of the data file that the result counts to.
  void consume(const StoredTensor& tensor, std::size_t file);
  // `record`: name, shape, scheme, group_size and scale_dtype are set. Its shape part is made here.
  void add_packed(TensorRecord record, PackedBytes bytes, std::size_t file);
  // A dense tensor of float32.
  void add_values(const std::string& name, std::vector<std::int64_t> shape, std::unique_ptr<TensorBytes> values,
                  std::size_t file);
  void finish();
  // Of all the checkpoint's tensors, after finish(). What was computed has no known original dtype.
  std::vector<TensorRecord> take_records();

 private:
  Checkpoint& checkpoint_;
  std::vector<std::unique_ptr<Translation>> translations_;  // by data file
  std::vector<TensorRecord> packed_;
  std::set<std::string, std::less<>> values_;
};

// What would call a copy of the checkpoint quantised in the way that was translated.
void forget_quantization(Checkpoint& checkpoint);

}  // namespace halfbyte::files

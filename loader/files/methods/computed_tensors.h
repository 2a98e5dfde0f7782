// Tensors of a checkpoint in another layout, replaced one by one by packed ones of halfbyte's or by their values, with
// the records of both. For readers whose sources lie in several files.
#pragma once

#include <set>

#include "loader/files/methods/foreign_tensors.h"

namespace halfbyte::files {

// In the layout of compressed-tensors.
struct PackedBytes {
  std::unique_ptr<TensorBytes> codes;
  std::unique_ptr<TensorBytes> scales;
  std::unique_ptr<TensorBytes> zero_points;   // null: the scheme has none
  std::unique_ptr<TensorBytes> column_order;  // null: their own
};

class ComputedTensors {
 public:
  // The checkpoint must outlive this, and is as it was until finish().
  explicit ComputedTensors(Checkpoint& checkpoint) : checkpoint_(checkpoint), changes_(checkpoint) {}

  void consume(const StoredTensor& tensor) { changes_.beside(tensor).consume(tensor); }
  // `record`: name, shape, scheme, group_size and scale_dtype are set. Its shape part is made here. `file`: index of
  // the data file that the result counts to.
  void add_packed(TensorRecord record, PackedBytes bytes, std::size_t file);
  // A dense tensor of float32.
  void add_values(const std::string& name, std::vector<std::int64_t> shape, std::unique_ptr<TensorBytes> values,
                  std::size_t file);
  void add_part(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape,
                std::unique_ptr<TensorBytes> bytes, std::size_t file) {
    changes_.beside(file).add(name, dtype, std::move(shape), std::move(bytes));
  }
  // One whose parts are stored, or were added.
  void add_record(TensorRecord record) { packed_.push_back(std::move(record)); }
  void finish() { changes_.finish(); }
  // Of all the checkpoint's tensors, after finish(). What was computed has no known original dtype.
  std::vector<TensorRecord> take_records();

 private:
  Checkpoint& checkpoint_;
  ForeignTensors changes_;
  std::vector<TensorRecord> packed_;
  std::set<std::string, std::less<>> values_;
};

}  // namespace halfbyte::files

// What a reader of another tool's layout changes in a checkpoint's tensors: some are the same bytes under another name,
// dtype and shape and stay where they lie, others are replaced by translated ones.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/files/translation.h"

namespace halfbyte::files {

class ForeignTensors {
 public:
  // The checkpoint must outlive this.
  explicit ForeignTensors(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // What is made of tensors in one data file.
  Translation& beside(std::size_t file);
  Translation& beside(const StoredTensor& tensor) { return beside(tensor.file); }
  // The bytes of `tensor` under another name, dtype and shape. Errors: kCorrupt when their number differs.
  void view(const StoredTensor& tensor, std::string name, Dtype dtype, std::vector<std::int64_t> shape);
  // Changes the checkpoint's tensors; StoredTensor pointers into it end here. Errors: kCorrupt when a name is there
  // twice.
  void finish();

 private:
  Checkpoint& checkpoint_;
  std::map<std::size_t, Translation> translations_;  // by data file
  std::map<std::size_t, StoredTensor> views_;        // by index into the checkpoint's tensors
};

// So many bytes are there, overflow and all. Units: bytes; nothing when the product overflows or a size is negative.
std::optional<std::uint64_t> bytes_of(Dtype dtype, std::span<const std::int64_t> shape) noexcept;

// "FILE: tensor "NAME"": how messages about a tensor begin.
std::string place_of(const Checkpoint& checkpoint, const StoredTensor& tensor);

// A part that must be there. `where`: of the tensor that it belongs to. Errors: kCorrupt.
const StoredTensor& part_of(const Checkpoint& checkpoint, const std::string& name, const std::string& where);
// The same, and of this dtype and number of values. Errors: kCorrupt.
const StoredTensor& part_of(const Checkpoint& checkpoint, const std::string& name, const std::string& where,
                            Dtype dtype, std::int64_t values);

// "1 tensor is", "3 tensors are".
std::string counted_are(std::int64_t tensors);

}  // namespace halfbyte::files

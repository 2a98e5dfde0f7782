// What tensors of GGUF files become: one of halfbyte's tensors of each, or of several that have a share of it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/formats/gguf/names.h"
#include "loader/files/formats/gguf/types.h"
#include "loader/files/translation.h"

namespace halfbyte::files {

// A tensor of a file, or an expert's share of one.
struct GgufPiece {
  std::string gguf_name;  // for messages
  std::size_t file = 0;   // index into Checkpoint::data_files
  std::uint64_t offset = 0;
  const GgmlType* type = nullptr;
  std::vector<std::int64_t> shape;
  GgufLayout layout = {};
  GgufValues values = GgufValues::kAsTheyAre;
};

// Adds tensors to a checkpoint.
class GgufWholes {
 public:
  explicit GgufWholes(Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  // One of halfbyte's tensors. `shape`: its own. What a scheme says exactly keeps its codes; the bytes of dense ones
  // are as they lie; all else comes to float32. Errors: kCorrupt naming the piece when the pieces are not all of it, or
  // are of other sizes; kUnsupported when a type's values cannot be said.
  void add(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<GgufPiece>& pieces,
           Translation& translation);

  std::vector<TensorRecord> take_records() { return std::move(records_); }
  // Tensors that came to float32, by type.
  const std::map<std::string_view, int>& dequantised() const noexcept { return dequantised_; }

 private:
  void add_packed(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<GgufPiece>& pieces,
                  Translation& translation);
  void add_dense(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<GgufPiece>& pieces,
                 Translation& translation);
  void add_values(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<GgufPiece>& pieces,
                  Translation& translation);
  [[noreturn]] void fail(const GgufPiece& piece, ErrorCode code, const std::string& problem) const;
  void check(const std::string& name, const std::vector<std::int64_t>& shape,
             const std::vector<GgufPiece>& pieces) const;
  // What `make` gives of each piece, in transformers' order. `values_each`, `bytes_each`: of what it makes of them.
  std::unique_ptr<TensorBytes> gathered(
      const std::vector<GgufPiece>& pieces, std::uint64_t values_each, std::uint64_t bytes_each,
      const std::function<std::unique_ptr<TensorBytes>(const GgufPiece&)>& make) const;
  std::unique_ptr<TensorBytes> converted(const GgufPiece& piece, ConvertBlocks* convert,
                                         std::uint64_t bytes_each) const;

  Checkpoint& checkpoint_;
  std::vector<TensorRecord> records_;
  std::map<std::string_view, int> dequantised_;
};

}  // namespace halfbyte::files

#include "convert/tied_duplicates.h"

#include <algorithm>

#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

bool are_equal(const files::Checkpoint& source, const files::StoredTensor& a, const files::StoredTensor& b) {
  std::vector<std::byte> left;
  std::vector<std::byte> right;
  for (std::uint64_t at = 0; at < a.size_bytes; at += left.size()) {
    left.resize(std::min(kBlockBytes, a.size_bytes - at));
    right.resize(left.size());
    source.data_files[a.file]->read(a.offset + at, left);
    source.data_files[b.file]->read(b.offset + at, right);
    if (left != right) return false;
  }
  return true;
}

}  // namespace

void check_tied_duplicates(const files::Checkpoint& source, const Plan& plan) {
  for (const PlannedTensor& planned : plan.tensors) {
    if (planned.tied_to.empty()) continue;
    const files::StoredTensor& alias = source.tensors[planned.source];
    if (are_equal(source, alias, *source.find(planned.tied_to))) continue;
    throw Error(ErrorCode::kCorrupt,
                files::printable_path(source.directory / "config.json") + ": ties " + files::in_quotes(alias.name) +
                    " to " + files::in_quotes(planned.tied_to) +
                    ", but the two are stored with different values; set tie_word_embeddings to false");
  }
}

}  // namespace halfbyte::convert

#include "convert/tied_duplicates.h"

#include "loader/files/difference.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {

void check_tied_duplicates(const files::Checkpoint& source, const Plan& plan) {
  for (const PlannedTensor& planned : plan.tensors) {
    if (planned.tied_to.empty()) continue;
    const files::StoredTensor& alias = source.tensors[planned.source];
    if (files::have_same_bytes(source, alias, source, *source.find(planned.tied_to))) continue;
    throw Error(ErrorCode::kCorrupt,
                files::printable_path(source.directory / "config.json") + ": ties " + files::in_quotes(alias.name) +
                    " to " + files::in_quotes(planned.tied_to) +
                    ", but the two are stored with different values; set tie_word_embeddings to false");
  }
}

}  // namespace halfbyte::convert

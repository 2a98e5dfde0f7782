#include "loader/files/column_order.h"

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {

std::vector<std::int32_t> read_column_order(const Checkpoint& checkpoint, const TensorRecord& record) {
  if (!record.parts.has(Part::kColumnOrder)) return {};
  const StoredTensor& stored = *checkpoint.find(record.parts[Part::kColumnOrder]);
  std::vector<std::int32_t> order(stored.size_bytes / sizeof(std::int32_t));
  read_stored(checkpoint, stored, 0, std::as_writable_bytes(std::span(order)));
  std::vector<bool> is_named(order.size());
  for (const std::int32_t column : order) {
    const auto index = static_cast<std::size_t>(column);
    if (column < 0 || index >= order.size() || is_named[index])
      throw Error(ErrorCode::kCorrupt, printable_path(checkpoint.data_files[stored.file]->path()) + ": tensor " +
                                           in_quotes(stored.name) + " is no order of " + std::to_string(order.size()) +
                                           " columns: it names column " + std::to_string(column) +
                                           (column < 0 || index >= order.size() ? "" : " twice"));
    is_named[index] = true;
  }
  return order;
}

}  // namespace halfbyte::files

#include "convert/export/dequantized_view.h"

#include <memory>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/export/dense_values.h"
#include "convert/file_notes.h"
#include "loader/files/derive.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/translation.h"

namespace halfbyte::convert {
namespace {

using files::Checkpoint;
using files::TensorRecord;

Dtype dtype_of(const TensorRecord& record) {
  if (record.original_dtype && is_weight_dtype(*record.original_dtype)) return *record.original_dtype;
  return record.scheme ? Dtype::kFloat32 : record.stored_dtype;
}

// Units are rows.
class DequantizedRows final : public files::UnitBytes {
 public:
  DequantizedRows(std::shared_ptr<const Checkpoint> source, const TensorRecord& record)
      : UnitBytes(static_cast<std::uint64_t>(files::matrix_shape(record.shape).columns *
                                             halfbyte::size_bytes(dtype_of(record))),
                  static_cast<std::uint64_t>(files::matrix_shape(record.shape).rows)),
        source_(std::move(source)),
        record_(record),
        columns_(files::matrix_shape(record.shape).columns) {}

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override {
    DenseReader(*source_, dense_target(*source_, record_, dtype_of(record_)))
        .read(static_cast<std::int64_t>(first) * columns_, static_cast<std::int64_t>(count) * columns_, out);
  }

 private:
  std::shared_ptr<const Checkpoint> source_;
  const TensorRecord& record_;  // of source_
  std::int64_t columns_;
};

}  // namespace

Checkpoint with_dense(const std::shared_ptr<const Checkpoint>& source, const DenseBytes& bytes_of) {
  Checkpoint out = *source;
  std::vector<std::unique_ptr<files::Translation>> translations;  // by data file
  for (const auto& file : source->data_files)
    translations.push_back(std::make_unique<files::Translation>(out, file->path()));
  std::set<std::string> replaced;
  for (const TensorRecord& record : source->manifest.tensors) {
    std::unique_ptr<files::TensorBytes> bytes = bytes_of(record, dtype_of(record));
    if (!bytes) continue;
    replaced.insert(record.name);
    const std::size_t file = source->find(record.parts[files::Part::kCodes])->file;
    for (const std::string& part : record.parts.names) {
      if (!part.empty()) translations[file]->consume(*source->find(part));
    }
    translations[file]->add(record.name, dtype_of(record), record.shape, std::move(bytes));
    if (dense_target(*source, record, dtype_of(record)).is_turned) out.row_stacks.insert(record.name);
  }
  for (const auto& translation : translations) translation->finish();
  for (TensorRecord& record : out.manifest.tensors) {
    if (record.scheme && !replaced.contains(record.name)) continue;
    const std::optional<Dtype> known = record.original_dtype;
    record = files::dense_record(out, *out.find(record.name));
    record.original_dtype = known;
  }
  out.manifest.files.clear();
  return out;
}

Checkpoint dequantized_view(Checkpoint source, Casts casts) {
  const auto original = std::make_shared<const Checkpoint>(std::move(source));
  Checkpoint out = with_dense(original, [&](const TensorRecord& record, Dtype dtype) {
    const bool is_cast = casts == Casts::kToRecorded && files::TensorReader::can_read(record) &&
                         record.stored_dtype != dtype && !record.shape.empty() && record.size_bytes > 0;
    return record.scheme || is_cast ? std::make_unique<DequantizedRows>(original, record) : nullptr;
  });
  // The file still has it, so the config is written anew.
  if (out.has_config() && out.config->erase("quantization_config") > 0) out.has_config_file = false;
  std::erase_if(out.side_files, is_quantization_file);
  out.manifest.kept.clear();
  return out;
}

}  // namespace halfbyte::convert

#include "convert/export/dequantized_view.h"

#include <memory>

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
  return record.original_dtype && is_weight_dtype(*record.original_dtype) ? *record.original_dtype : Dtype::kFloat32;
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

Checkpoint dequantized_view(Checkpoint source) {
  const auto original = std::make_shared<const Checkpoint>(std::move(source));
  Checkpoint out = *original;
  std::vector<std::unique_ptr<files::Translation>> translations;  // by data file
  for (std::size_t i = 0; i < original->data_files.size(); ++i)
    translations.push_back(std::make_unique<files::Translation>(out, original->data_files[i]->path()));
  for (TensorRecord& record : out.manifest.tensors) {
    if (!record.scheme) continue;
    const std::size_t file = original->find(record.parts[files::Part::kCodes])->file;
    for (const std::string& part : record.parts.names) {
      if (!part.empty()) translations[file]->consume(*original->find(part));
    }
    translations[file]->add(record.name, dtype_of(record), record.shape,
                            std::make_unique<DequantizedRows>(original, *original->manifest.find(record.name)));
    const DenseTarget target = dense_target(*original, record, dtype_of(record));
    if (target.is_turned) out.row_stacks.insert(record.name);
  }
  for (const auto& translation : translations) translation->finish();
  for (TensorRecord& record : out.manifest.tensors) {
    const std::optional<Dtype> known = record.original_dtype;
    record = files::dense_record(out, *out.find(record.name));
    record.original_dtype = known;
  }
  if (out.has_config()) out.config->erase("quantization_config");
  std::erase_if(out.side_files, is_quantization_file);
  out.manifest.files.clear();
  out.manifest.kept.clear();
  return out;
}

}  // namespace halfbyte::convert

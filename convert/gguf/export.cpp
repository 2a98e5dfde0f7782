#include "convert/gguf/export.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "convert/gguf/blocks.h"
#include "convert/gguf/plan.h"
#include "convert/output/destination.h"
#include "convert/translated_errors.h"
#include "loader/files/parallel.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::convert {
namespace {

using files::Part;
using files::TensorRecord;

// llama.cpp's general.file_type by the type that most matrices have.
std::int64_t file_type(const GgufPlan& plan) {
  constexpr std::pair<std::string_view, std::int64_t> kFileTypes[] = {
      {"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q4_1", 3}, {"Q8_0", 7}, {"IQ4_NL", 25}, {"BF16", 32}};
  std::map<std::string_view, int> counts;
  for (const GgufOutput& tensor : plan.tensors) counts[tensor.type->name] += tensor.shape.size() > 1 ? 1 : 0;
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return std::ranges::find(kFileTypes, most->first, [](const auto& row) { return row.first; })->second;
}

std::string header(const GgufPlan& plan, const GgufMetadata& metadata) {
  std::string out = "GGUF";
  append_raw(out, std::uint32_t{3});
  append_raw(out, static_cast<std::uint64_t>(plan.tensors.size()));
  append_raw(out, metadata.count());
  out += metadata.bytes();
  for (const GgufOutput& tensor : plan.tensors) {
    append_text(out, tensor.name);
    append_raw(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (std::size_t i = tensor.shape.size(); i > 0; --i)
      append_raw(out, static_cast<std::uint64_t>(tensor.shape[i - 1]));
    append_raw(out, tensor.type->number);
    append_raw(out, tensor.offset);
  }
  out.resize(gguf_padded(out.size()), '\0');
  return out;
}

// Where row `r` of Meta's order stands in transformers'.
std::int64_t transformers_row(const files::RowOrder& order, std::int64_t r) {
  if (order.heads == 0) return r;
  const std::int64_t head = order.rows / order.heads, within = r % head;
  return r - within + within % 2 * (head / 2) + within / 2;
}

// Some rows of one source in the type of the result.
class RowWriter {
 public:
  RowWriter(const files::Checkpoint& source, const GgufOutput& tensor, const TensorRecord& record)
      : source_(source),
        tensor_(tensor),
        record_(record),
        reader_(source, record),
        columns_(static_cast<std::size_t>(tensor.shape.size() > 1 ? record.shape.back() : 1)) {}

  std::size_t row_bytes() const { return columns_ / tensor_.type->block_values * tensor_.type->block_bytes; }

  void write(std::int64_t row, std::byte* out) {
    const std::int64_t from = transformers_row(tensor_.order, row);
    tensor_.is_exact ? write_codes(from, out) : write_values(from, out);
  }

 private:
  void write_codes(std::int64_t row, std::byte* out) {
    const std::size_t groups = columns_ / static_cast<std::size_t>(record_.group_size);
    codes_.resize(static_cast<std::size_t>(packed_row_bytes(*record_.scheme, record_.shape.back())));
    read(Part::kCodes, static_cast<std::uint64_t>(row) * codes_.size(), codes_);
    read_float16(Part::kScale, row, groups, scales_);
    if (record_.parts.has(Part::kOffset)) read_float16(Part::kOffset, row, groups, offsets_);
    exact_blocks(tensor_.type->name)(
        {codes_.data(), scales_.data(), offsets_.data(), columns_, static_cast<std::size_t>(record_.group_size)}, out);
  }

  using WriteBlocks = void (*)(const GgufRow& row, std::byte* out) noexcept;
  static WriteBlocks exact_blocks(std::string_view type) {
    if (type == "Q8_0") return exact_q8_0;
    return type == "Q4_1" ? exact_q4_1 : exact_q4_0;
  }

  // A row of scales or offsets, whose numbers float16 has.
  void read_float16(Part part, std::int64_t row, std::size_t groups, std::vector<std::byte>& out) {
    const auto count = static_cast<std::int64_t>(groups);
    stored_.resize(groups * static_cast<std::size_t>(size_bytes(record_.scale_dtype)));
    read(part, static_cast<std::uint64_t>(row) * stored_.size(), stored_);
    if (record_.scale_dtype == Dtype::kFloat16) {
      out = stored_;
      return;
    }
    out.resize(groups * 2);
    values_.resize(groups);
    std::byte* const wide = std::as_writable_bytes(std::span(values_)).data();
    quant::convert(stored_.data(), record_.scale_dtype, wide, Dtype::kFloat32, count);
    quant::convert(wide, Dtype::kFloat32, out.data(), Dtype::kFloat16, count);
  }

  void read(Part part, std::uint64_t begin, std::span<std::byte> out) const {
    files::read_stored(source_, *source_.find(record_.parts[part]), begin, out);
  }

  void write_values(std::int64_t row, std::byte* out) {
    values_.resize(columns_);
    reader_.read(row * static_cast<std::int64_t>(columns_), values_);
    if (tensor_.shift != 0) {
      for (float& value : values_) value += tensor_.shift;
    }
    if (!std::ranges::all_of(values_, [](float value) { return std::isfinite(value); }))
      throw Error(ErrorCode::kCorrupt, "tensor " + files::in_quotes(record_.name) + " has values that are not finite");
    if (tensor_.type->name == "Q4_0") return quantize_q4_0(values_, out);
    if (tensor_.type->name == "Q4_1") return quantize_q4_1(values_, out);
    if (tensor_.type->name == "Q8_0") return quantize_q8_0(values_, out);
    quant::convert(std::as_bytes(std::span(values_)).data(), Dtype::kFloat32, out, *tensor_.type->dtype,
                   static_cast<std::int64_t>(columns_));
  }

  const files::Checkpoint& source_;
  const GgufOutput& tensor_;
  const TensorRecord& record_;
  files::TensorReader reader_;
  std::size_t columns_;
  std::vector<std::byte> codes_, stored_, scales_, offsets_;
  std::vector<float> values_;
};

// Rows of one source of one tensor.
struct Piece {
  const GgufOutput* tensor;
  std::size_t source;
  std::int64_t begin, end;
};

std::int64_t rows_of(const TensorRecord& record) {
  std::int64_t out = 1;
  for (std::size_t i = 0; i + 1 < std::max<std::size_t>(2, record.shape.size()) && i < record.shape.size(); ++i)
    out *= record.shape[i];
  return out;
}

std::vector<Piece> pieces_of(const GgufPlan& plan) {
  constexpr std::int64_t kRows = 64;
  std::vector<Piece> out;
  for (const GgufOutput& tensor : plan.tensors) {
    for (std::size_t source = 0; source < tensor.sources.size(); ++source) {
      const std::int64_t rows = rows_of(*tensor.sources[source]);
      for (std::int64_t at = 0; at < rows; at += kRows)
        out.push_back({&tensor, source, at, std::min(at + kRows, rows)});
    }
  }
  return out;
}

// Returns the bytes written.
std::uint64_t write_piece(const files::Checkpoint& source, const Piece& piece, std::uint64_t data,
                          files::OutputFile& file) {
  const GgufOutput& tensor = *piece.tensor;
  RowWriter rows(source, tensor, *tensor.sources[piece.source]);
  std::vector<std::byte> out(static_cast<std::size_t>(piece.end - piece.begin) * rows.row_bytes());
  for (std::int64_t row = piece.begin; row < piece.end; ++row)
    rows.write(row, out.data() + static_cast<std::size_t>(row - piece.begin) * rows.row_bytes());
  const std::uint64_t first = piece.source * (tensor.size_bytes / tensor.sources.size());
  file.write(data + tensor.offset + first + static_cast<std::uint64_t>(piece.begin) * rows.row_bytes(), out);
  return out.size();
}

// Gone unless it got its name.
class PartialFile {
 public:
  explicit PartialFile(const fs::path& path, bool overwrite) : final_(path), path_(path.string() + ".partial") {
    std::error_code ignored;
    if (fs::is_directory(final_, ignored))
      throw Error(ErrorCode::kInvalidArgument, files::printable_path(final_) + ": is a folder; name a file");
    if (!overwrite && fs::exists(final_, ignored))
      throw Error(ErrorCode::kAlreadyExists, files::printable_path(final_) + ": exists; --overwrite replaces it");
    fs::remove(path_, ignored);
  }
  ~PartialFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  const fs::path& path() const noexcept { return path_; }
  void commit() const { fs::rename(path_, final_); }

 private:
  fs::path final_, path_;
};

void write_file(const files::Checkpoint& source, const GgufPlan& plan, const std::string& head, const fs::path& path,
                const GgufExportOptions& options) {
  files::OutputFile file(path, head.size() + plan.data_bytes);
  file.write(0, std::as_bytes(std::span(head)));
  for (const GgufOutput& tensor : plan.tensors) {
    if (tensor.sources.empty()) file.write(head.size() + tensor.offset, std::as_bytes(std::span(tensor.values)));
  }
  const std::vector<Piece> pieces = pieces_of(plan);
  files::SharedProgress progress(options.progress, plan.data_bytes);
  files::parallel_for(pieces.size(), 0, [&](std::size_t i) {
    if (options.stop.stop_requested())
      throw Error(ErrorCode::kInterrupted, "stopped; what was written has been removed");
    progress.add(write_piece(source, pieces[i], head.size(), file));
  });
  file.sync();
}

GgufExportSummary write_gguf(const fs::path& source_path, const fs::path& destination,
                             const GgufExportOptions& options) {
  const files::Checkpoint source = files::open_checkpoint(source_path);
  check_apart(source_path, destination);
  const files::GgufFamily* family =
      source.architecture ? files::gguf_family_of(source.architecture->model_type) : nullptr;
  if (!family)
    throw Error(ErrorCode::kUnsupported, files::printable_path(source_path) + ": its family has no name in GGUF here");
  models::ModelConfig model = source.architecture->parse(nlohmann::json(source.config));
  source.architecture->choose_naming(model, [&](const std::string& name) { return source.manifest.find(name); });
  const PartialFile partial(destination, options.overwrite);
  GgufPlan plan = plan_gguf(source, model, *family, options);
  GgufMetadata metadata;
  add_model(model, *family, metadata);
  metadata.number("general.file_type", file_type(plan));
  if (model.sliding_window > 0 && family->architecture != "gemma2" && family->architecture != "phi3") {
    plan.summary.notes.push_back("llama.cpp's " + std::string(family->architecture) +
                                 " knows no sliding window: beyond " + std::to_string(model.sliding_window) +
                                 " tokens its results differ");
  }
  add_tokenizer(source, model.vocab_size, metadata, plan.summary.notes);
  const std::string head = header(plan, metadata);
  write_file(source, plan, head, partial.path(), options);
  partial.commit();
  plan.summary.source_bytes = source.size_bytes;
  plan.summary.result_bytes = head.size() + plan.data_bytes;
  return plan.summary;
}

}  // namespace

GgufExportSummary export_gguf(const fs::path& source_path, const fs::path& destination,
                              const GgufExportOptions& options) {
  return with_translated_errors("exporting", source_path,
                                [&] { return write_gguf(source_path, destination, options); });
}

}  // namespace halfbyte::convert

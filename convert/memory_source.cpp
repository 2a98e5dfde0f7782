#include <halfbyte/memory_source.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/conversion.h"
#include "convert/file_notes.h"
#include "convert/memory_checkpoint.h"
#include "convert/small_parts.h"
#include "loader/check_tensors.h"
#include "loader/files/derive.h"
#include "loader/files/directory.h"
#include "loader/files/json_text.h"
#include "loader/files/manifest_check.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "models/tokenizers/utf8_text.h"

namespace halfbyte::convert {
namespace {

namespace fs = std::filesystem;
using files::Checkpoint;
using files::TensorRecord;

constexpr const char* kKind = "tensors in memory";

[[noreturn]] void refuse(const std::string& name, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "tensor " + files::in_quotes(name) + ": " + problem);
}

bool is_utf8(std::string_view text) noexcept { return models::valid_utf8_prefix(text) == text.size(); }

// Units: bytes.
std::uint64_t size_for(const std::string& name, Dtype dtype, const std::vector<std::int64_t>& shape) {
  auto bits = static_cast<std::uint64_t>(info(dtype).bits);
  bool is_possible = true;
  for (const std::int64_t length : shape) {
    if (length < 0) refuse(name, "a negative length");
    is_possible = !__builtin_mul_overflow(bits, static_cast<std::uint64_t>(length), &bits) && is_possible;
  }
  if (is_possible && bits % 8 == 0) return bits / 8;
  refuse(name, "shape " + files::printable(shape) + " of " + std::string(halfbyte::name(dtype)) +
                   " does not give a possible number of bytes");
}

// Runs of bytes one after another, as if they were a file.
class MemoryFile final : public files::DataFile {
 public:
  // Returns where they begin. They must stay.
  std::uint64_t add(std::span<const std::byte> bytes) {
    runs_.push_back({size_, bytes});
    size_ += bytes.size();
    return runs_.back().offset;
  }
  std::uint64_t add(std::vector<std::byte> bytes) {
    return add(std::span<const std::byte>(own_.emplace_back(std::move(bytes))));
  }

  const fs::path& path() const noexcept override { return path_; }
  std::uint64_t size_bytes() const noexcept override { return size_; }
  bool is_on_disk() const noexcept override { return true; }  // its bytes are what a file of it would hold
  void drop_cache_behind(std::uint64_t, std::uint64_t) const noexcept override {}
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (out.empty()) return;
    auto run = std::ranges::upper_bound(runs_, offset, {}, &Run::offset);
    for (--run; !out.empty(); ++run) {
      const std::span<const std::byte> rest = run->bytes.subspan(offset - run->offset);
      const std::size_t count = std::min(rest.size(), out.size());
      if (count > 0) std::memcpy(out.data(), rest.data(), count);
      out = out.subspan(count);
      offset += count;
    }
  }

 private:
  struct Run {
    std::uint64_t offset;
    std::span<const std::byte> bytes;
  };
  const fs::path path_ = fs::path(kKind) / "model.safetensors";
  std::vector<Run> runs_;  // by offset
  std::deque<std::vector<std::byte>> own_;
  std::uint64_t size_ = 0;
};

// Puts tensors into a checkpoint of one such file.
class Builder {
 public:
  explicit Builder(Checkpoint& out) : out_(out), file_(std::make_shared<MemoryFile>()) {
    out_.data_files.push_back(file_);
    out_.data_offsets.push_back(0);
    out_.kind = kKind;
    out_.directory = kKind;  // for messages
  }

  template <class Bytes>
  void add(const std::string& name, Dtype dtype, const std::vector<std::int64_t>& shape, Bytes bytes) {
    claim(name);
    const std::uint64_t wanted = size_for(name, dtype, shape), size = bytes.size();
    if (size != wanted)
      refuse(name, std::to_string(size) + " bytes for a shape of " + std::to_string(wanted) + " bytes");
    out_.tensors.push_back({name, dtype, shape, 0, file_->add(std::move(bytes)), size});
    out_.size_bytes += size;
  }

  TensorRecord add(const MemoryPackedTensor& tensor) {
    TensorRecord record = record_of(tensor);
    if (std::ranges::find(record.parts.names, record.name) == record.parts.names.end()) claim(record.name);
    const std::vector<SmallPart> constants = constant_parts(record);
    for (const files::PartSpec& spec : files::packed_parts(record)) {
      const std::string& name = record.parts[spec.part];
      if (name.empty()) continue;
      record.size_bytes += spec_bytes(spec);
      const auto constant = std::ranges::find(constants, spec.part, &SmallPart::part);
      if (constant != constants.end()) {
        add(name, spec.dtype, spec.written_shape(), std::vector<std::byte>(constant->bytes));
      } else if (spec.part == Part::kScale && tensor.scheme->scale_bits % 8 != 0) {
        add(name, spec.dtype, spec.shape, scale_bits(tensor));
      } else {
        add(name, spec.dtype, spec.shape, tensor.parts[static_cast<std::size_t>(spec.part)]);
      }
    }
    return record;
  }

 private:
  void claim(const std::string& name) {
    if (name == "__metadata__" || !is_utf8(name)) refuse(name, "no safetensors file can have a tensor of that name");
    if (!names_.insert(name).second) refuse(name, "is there twice");
  }

  static std::uint64_t spec_bytes(const files::PartSpec& spec) {
    std::int64_t out = halfbyte::size_bytes(spec.dtype);
    for (const std::int64_t length : spec.written_shape()) out *= length;
    return static_cast<std::uint64_t>(out);
  }

  static TensorRecord record_of(const MemoryPackedTensor& tensor) {
    TensorRecord out;
    out.name = tensor.name;
    out.shape = tensor.shape;
    out.original_dtype = tensor.original_dtype;
    out.scheme = tensor.scheme;
    if (!out.scheme) refuse(tensor.name, "no scheme");
    const bool is_matrix =
        out.shape.size() == 2 && out.shape[0] > 0 && out.shape[1] > 0 && out.shape[0] <= kMostWeights / out.shape[1];
    if (!is_matrix || tensor.group_size < 1 || out.shape[1] % tensor.group_size != 0)
      refuse(tensor.name, "a packed tensor is a matrix of whole groups");
    out.group_size = tensor.group_size;
    const auto* rule = find_part(*out.scheme, Part::kScale);
    out.scale_dtype = rule && rule->dtype ? *rule->dtype : tensor.scale_dtype;
    out.parts = files::packed_part_names(out);
    if (!tensor.parts[static_cast<std::size_t>(Part::kColumnOrder)].empty())
      out.parts[Part::kColumnOrder] = files::part_name(out, Part::kColumnOrder);
    return out;
  }

  // As the file has them: a row after another, without the bits that are none.
  static std::vector<std::byte> scale_bits(const MemoryPackedTensor& tensor) {
    const std::int64_t rows = tensor.shape[0], groups = tensor.shape[1] / tensor.group_size;
    const std::span<const std::byte> bytes = tensor.parts[static_cast<std::size_t>(Part::kScale)];
    if (bytes.size() != static_cast<std::size_t>(rows * groups))
      refuse(tensor.name, "a byte of scale a group is wanted");
    const std::int64_t row_bytes = row_scale_bytes(*tensor.scheme, groups);
    std::vector<std::byte> out(static_cast<std::size_t>(rows * row_bytes));
    for (std::int64_t row = 0; row < rows; ++row)
      quant::pack_scale_bits(*tensor.scheme, bytes.data() + row * groups, groups, out.data() + row * row_bytes);
    return out;
  }

  static constexpr std::int64_t kMostWeights = std::int64_t{1} << 56;  // so that no part's size overflows

  Checkpoint& out_;
  std::shared_ptr<MemoryFile> file_;
  std::set<std::string> names_;
};

void read_config(const std::string& text, Checkpoint& out) {
  if (text.empty()) return;
  out.config = files::parse_json<nlohmann::ordered_json>(text, files::kConfigFile, files::kConfigLimits);
  if (!out.config->is_object()) throw Error(ErrorCode::kCorrupt, "config.json: not a JSON object");
  out.config->erase("quantization_config");  // that of the result is made
  out.architecture = models::find_architecture(nlohmann::json(*out.config));
}

void check_file_name(const std::string& name) {
  const auto fail = [&](const char* problem) {
    throw Error(ErrorCode::kInvalidArgument, "file " + files::in_quotes(name) + ": " + problem);
  };
  if (!files::is_plain_file_name(name)) fail("a name without a folder is wanted");
  if (!is_utf8(name)) fail("a name in UTF-8 is wanted, as a checkpoint's record has them");
  if (name.ends_with(".safetensors") || name == files::kIndexFile)
    fail("the result's tensors have files of such names");
}

void add_files(const MemorySource& source, Checkpoint& out) {
  for (const auto& [name, text] : source.files) {
    check_file_name(name);
    if (is_quantization_file(name) || name == files::kConfigFile || name == files::kManifestFile) continue;
    out.generated_files.emplace(name, [&text] { return text; });
  }
}

}  // namespace

Checkpoint checkpoint_of(const MemorySource& source) {
  Checkpoint out;
  read_config(source.config, out);
  Builder builder(out);
  for (const MemoryTensor& tensor : source.tensors) builder.add(tensor.name, tensor.dtype, tensor.shape, tensor.bytes);
  std::vector<TensorRecord> packed;
  for (const MemoryPackedTensor& tensor : source.packed) packed.push_back(builder.add(tensor));
  // As a file's header has them, empty ones too.
  std::ranges::sort(out.tensors, {}, [](const auto& t) { return std::tie(t.offset, t.size_bytes, t.name); });
  files::index_tensors(out);
  add_files(source, out);
  out.manifest = files::derive_manifest(out, std::move(packed));
  files::check_manifest(out);
  check_complete(out);
  return out;
}

QuantizeSummary quantize(const MemorySource& source, const std::filesystem::path& destination,
                         const QuantizeOptions& options) {
  if (options.resume) throw Error(ErrorCode::kInvalidArgument, Option::kResume + ": there is no file to go on from");
  return run(prepare(checkpoint_of(source), options), destination);
}

}  // namespace halfbyte::convert

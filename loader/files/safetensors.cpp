#include "loader/files/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "loader/files/not_weights.h"
#include "loader/files/printable.h"

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian and are read in place");

namespace halfbyte::files {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 64;  // PyTorch's own limit

// An entry while its fields arrive, in any order.
struct RawEntry {
  std::string name;
  std::optional<Dtype> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::vector<std::uint64_t> offsets;
  bool has_offsets = false;
};

// Receives nlohmann's SAX events, so that a hostile header never becomes a tree: memory stays in proportion to its
// text.
class HeaderReader {
 public:
  HeaderReader(const std::string& file_name, std::vector<RawEntry>& entries,
               std::map<std::string, std::string>& metadata)
      : file_name_(file_name), entries_(entries), metadata_(metadata) {}

  bool null() { return wrong("null"); }
  bool boolean(bool) { return wrong("a boolean"); }
  bool number_float(double, const std::string& text) { return wrong(printable(text, 40)); }
  bool number_integer(std::int64_t value) { return wrong(std::to_string(value)); }
  bool binary(std::vector<std::uint8_t>&) { return wrong("binary data"); }

  bool number_unsigned(std::uint64_t value) {
    if (where_ == Where::kOffsets) {
      if (entry().offsets.size() == 2) fail("\"data_offsets\" has more than two numbers");
      entry().offsets.push_back(value);
      return true;
    }
    if (where_ != Where::kShape || value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return wrong(std::to_string(value));
    }
    if (entry().shape->size() == kMaxRank) fail("has more than " + std::to_string(kMaxRank) + " dimensions");
    entry().shape->push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& text) {
    if (where_ == Where::kMetadata) {
      if (!metadata_.emplace(key_, text).second) fail("\"__metadata__\" has the key " + in_quotes(key_) + " twice");
      return true;
    }
    if (where_ != Where::kEntry || key_ != "dtype") return wrong(in_quotes(text));
    if (entry().dtype) fail("\"dtype\" stands twice");
    entry().dtype = dtype_from_safetensors(text);
    if (!entry().dtype) {
      throw Error(ErrorCode::kUnsupported,
                  subject() + "dtype " + in_quotes(text) + " is not one that this version reads");
    }
    return true;
  }

  bool key(std::string& text) {
    key_ = std::move(text);
    return true;
  }

  bool start_object(std::size_t) {
    if (where_ == Where::kStart) {
      where_ = Where::kTop;
    } else if (where_ == Where::kTop && key_ == "__metadata__") {
      if (std::exchange(has_metadata_, true)) fail("\"__metadata__\" stands twice");
      where_ = Where::kMetadata;
    } else if (where_ == Where::kTop) {
      entries_.emplace_back().name = key_;
      where_ = Where::kEntry;
    } else {
      return wrong("an object");
    }
    return true;
  }

  bool end_object() {
    if (where_ == Where::kEntry) check_complete();
    where_ = where_ == Where::kTop ? Where::kStart : Where::kTop;
    return true;
  }

  bool start_array(std::size_t) {
    if (where_ != Where::kEntry) return wrong("a list");
    if (key_ == "shape") {
      if (entry().shape) fail("\"shape\" stands twice");
      entry().shape.emplace();
      where_ = Where::kShape;
    } else if (key_ == "data_offsets") {
      if (std::exchange(entry().has_offsets, true)) fail("\"data_offsets\" stands twice");
      where_ = Where::kOffsets;
    } else {
      return wrong("a list");
    }
    return true;
  }

  bool end_array() {
    where_ = Where::kEntry;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kCorrupt, file_name_ + ": the safetensors header is not JSON: " + json_problem(error));
  }

 private:
  enum class Where { kStart, kTop, kMetadata, kEntry, kShape, kOffsets };

  RawEntry& entry() { return entries_.back(); }
  bool in_entry() const { return where_ == Where::kEntry || where_ == Where::kShape || where_ == Where::kOffsets; }
  std::string subject() const {
    return file_name_ + ": " +
           (in_entry() ? "tensor " + in_quotes(entries_.back().name) + ": " : "safetensors header: ");
  }
  [[noreturn]] void fail(const std::string& problem) const { throw Error(ErrorCode::kCorrupt, subject() + problem); }

  bool wrong(const std::string& found) const {
    if (where_ == Where::kStart) fail("found " + found + ", wanted an object");
    constexpr std::array kFields{std::pair{"dtype", "a dtype's name"},
                                 std::pair{"shape", "a list of whole numbers from 0 on"},
                                 std::pair{"data_offsets", "two whole numbers from 0 on"}};
    if (in_entry()) {
      for (const auto& [field, wanted] : kFields) {
        if (key_ == field) fail('"' + std::string(field) + "\" holds " + found + ", wanted " + wanted);
      }
    }
    fail("unexpected field " + in_quotes(key_) + " holding " + found);
  }

  void check_complete() {
    if (!entry().dtype) fail("has no \"dtype\"");
    if (!entry().shape) fail("has no \"shape\"");
    if (entry().offsets.size() != 2) fail("has no \"data_offsets\" of two numbers");
  }

  const std::string& file_name_;
  std::vector<RawEntry>& entries_;
  std::map<std::string, std::string>& metadata_;
  Where where_ = Where::kStart;
  bool has_metadata_ = false;
  std::string key_;
};

// Units: bytes; nothing when the product does not fit or ends within a byte.
std::optional<std::uint64_t> extent(const std::vector<std::int64_t>& shape, Dtype dtype) {
  std::uint64_t total = static_cast<std::uint64_t>(info(dtype).bits);
  for (const std::int64_t dimension : shape) {
    if (dimension == 0) return 0;
    if (__builtin_mul_overflow(total, static_cast<std::uint64_t>(dimension), &total)) return std::nullopt;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

SafetensorsEntry checked(RawEntry raw, std::uint64_t data_bytes, const std::string& file_name) {
  const std::string subject = file_name + ": tensor " + in_quotes(raw.name) + ": ";
  const std::uint64_t begin = raw.offsets[0];
  const std::uint64_t end = raw.offsets[1];
  if (begin > end || end > data_bytes) {
    throw Error(ErrorCode::kCorrupt, subject + "its data are said to be bytes " + std::to_string(begin) + " to " +
                                         std::to_string(end) + " of " + std::to_string(data_bytes) +
                                         "; the file is truncated or damaged, copy it again");
  }
  const auto wanted = extent(*raw.shape, *raw.dtype);
  if (!wanted || *wanted != end - begin) {
    throw Error(ErrorCode::kCorrupt,
                subject + "shape " + printable(*raw.shape) + " of " + std::string(name(*raw.dtype)) +
                    (wanted ? " takes " + std::to_string(*wanted) : " does not give a possible number of") +
                    " bytes, its offsets give " + std::to_string(end - begin));
  }
  return {std::move(raw.name), *raw.dtype, std::move(*raw.shape), begin, end - begin};
}

// Source: safetensors/src/tensor.rs, Metadata::validate.
void check_cover(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes, const std::string& file_name) {
  std::uint64_t position = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != position) {
      throw Error(ErrorCode::kCorrupt, file_name + ": tensor " + in_quotes(entry.name) + ": its data begin at " +
                                           std::to_string(entry.offset) + ", the previous tensor's end at " +
                                           std::to_string(position) +
                                           "; safetensors allows neither holes nor overlaps");
    }
    position += entry.size_bytes;
  }
  if (position != data_bytes) {
    throw Error(ErrorCode::kCorrupt, file_name + ": " + std::to_string(data_bytes - position) +
                                         " bytes after the last tensor belong to none");
  }
}

void check_names(const std::vector<SafetensorsEntry>& entries, const std::string& file_name) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) names.emplace_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return;
  throw Error(ErrorCode::kCorrupt,
              file_name + ": tensor " + in_quotes(*twice) + " stands twice in the safetensors header");
}

std::uint64_t header_length(const InputFile& file, const std::string& file_name) {
  if (file.size_bytes() < kLengthBytes) {
    refuse_not_weights(file, "copy it again");
    throw Error(ErrorCode::kCorrupt, file_name + ": " + std::to_string(file.size_bytes()) +
                                         " bytes are too few for a safetensors file; copy it again");
  }
  std::array<std::byte, kLengthBytes> raw{};
  file.read(0, raw);
  const auto length = std::bit_cast<std::uint64_t>(raw);
  const std::uint64_t limit = std::min(kMaxSafetensorsHeader, file.size_bytes() - kLengthBytes);
  if (length <= limit) return length;
  refuse_not_weights(file, "copy it again");
  throw Error(ErrorCode::kCorrupt, file_name + ": the header is said to have " + std::to_string(length) +
                                       " bytes, at most " + std::to_string(limit) +
                                       " are possible; the file is truncated or not safetensors");
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::string& file_name) {
  if (!json.starts_with('{') || json.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::kCorrupt, file_name + ": the safetensors header is not JSON; is this a safetensors file?");
  }
  SafetensorsHeader header;
  std::vector<RawEntry> raw;
  HeaderReader reader(file_name, raw, header.metadata);
  nlohmann::json::sax_parse(json, &reader);
  header.entries.reserve(raw.size());
  for (RawEntry& entry : raw) header.entries.push_back(checked(std::move(entry), data_bytes, file_name));
  std::ranges::sort(header.entries, {},
                    [](const SafetensorsEntry& e) { return std::tie(e.offset, e.size_bytes, e.name); });
  check_cover(header.entries, data_bytes, file_name);
  check_names(header.entries, file_name);
  header.data_offset = kLengthBytes + json.size();
  for (SafetensorsEntry& entry : header.entries) entry.offset += header.data_offset;
  return header;
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const std::string file_name = printable_path(file.path());
  const std::uint64_t length = header_length(file, file_name);
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return parse_safetensors_header(text, file.size_bytes() - kLengthBytes - length, file_name);
}

}  // namespace halfbyte::files

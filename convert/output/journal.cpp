#include "convert/output/journal.h"

#include <cmath>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/hash.h"
#include "loader/files/json_text.h"

namespace halfbyte::convert {
namespace {

using files::OutputFile;
using nlohmann::json;

constexpr const char* kFile = "journal";
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
constexpr std::size_t kHashDigits = 32;
constexpr const char* kSourceHash = "source_hash";
constexpr const char* kTensorHash = "tensor_hash";

std::string line_of(const json& value) {
  const std::string text = value.dump();
  return files::hash_hex(text) + " " + text + "\n";
}

// The next whole and sound line's value; takes it off `rest`.
std::optional<json> take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || end <= kHashDigits || rest[kHashDigits] != ' ') return std::nullopt;
  const std::string_view text = rest.substr(kHashDigits + 1, end - kHashDigits - 1);
  if (files::hash_hex(text) != rest.substr(0, kHashDigits)) return std::nullopt;
  try {
    json value = files::parse_json<json>(text, kFile, {});
    if (!value.is_object()) return std::nullopt;
    rest.remove_prefix(end + 1);
    return value;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What a measurement can be. Errors: json::exception, as for any other value that nobody wrote.
double magnitude(const json& value) {
  const auto number = value.get<double>();
  if (std::isfinite(number) && number >= 0) return number;
  throw json::other_error::create(500, "not a magnitude", &value);
}

// Doubles are written as the shortest text that reads back the same.
json json_of(std::size_t tensor, const FinishedTensor& finished) {
  json out{{"tensor", tensor},
           {finished.has_own_hash ? kTensorHash : kSourceHash, finished.source_hash},
           {"xxh3_128", finished.result.xxh3_128}};
  if (const auto& error = finished.result.error)
    out["error"] = {error->sum_squared_error, error->sum_squares, error->max_abs};
  if (const auto& offset = finished.result.nested_offset) out["nested_offset"] = *offset;
  return out;
}

FinishedTensor finished_of(const json& value) {
  const bool has_own_hash = value.contains(kTensorHash);
  FinishedTensor out{value.at(has_own_hash ? kTensorHash : kSourceHash), {value.at("xxh3_128"), {}, {}}, has_own_hash};
  const auto error = value.find("error");
  if (error != value.end())
    out.result.error = quant::ErrorStats{magnitude(error->at(0)), magnitude(error->at(1)), magnitude(error->at(2))};
  const auto offset = value.find("nested_offset");
  if (offset != value.end()) out.result.nested_offset = offset->get<float>();
  return out;
}

void take_into(JournalContents& out, const json& line) {
  const auto layer = line.find("layer");
  if (layer == line.end()) {
    out.finished[line.at("tensor")] = finished_of(line);
  } else {
    out.layers.insert_or_assign(layer->get<std::int64_t>(), models::HeldJson(line.at("calibrated")));
  }
}

}  // namespace

std::string JournalContents::progress() const {
  const auto counted = [](std::size_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  std::string out = layers.empty() ? "" : counted(layers.size(), "calibrated layer");
  if (!finished.empty()) out += (out.empty() ? "" : " and ") + counted(finished.size(), "finished tensor");
  return out;
}

std::optional<JournalContents> read_journal(const files::fs::path& directory) {
  const files::fs::path path = directory / kFile;
  if (!files::is_sole_regular_file(path)) return std::nullopt;
  const std::string text = files::read_text(path, kMaxBytes);
  std::string_view rest = text;
  auto identity = take_line(rest);
  if (!identity) return std::nullopt;
  JournalContents out{models::HeldJson(std::move(*identity)), {}, {}, 0};
  try {
    while (const auto line = take_line(rest)) take_into(out, *line);
  } catch (const json::exception&) {  // a sound line that some other version wrote: its identity will not match
  }
  out.size_bytes = text.size() - rest.size();
  return out;
}

Journal::Journal(const files::fs::path& directory, const json& identity)
    : file_(directory / kFile, 0, OutputFile::Existing::kGoOn), size_bytes_(0) {
  append_line(identity);
}

Journal::Journal(const files::fs::path& directory, const JournalContents& contents)
    : file_(directory / kFile, contents.size_bytes, OutputFile::Existing::kGoOn), size_bytes_(contents.size_bytes) {
  if (size_bytes_ == 0) append_line(*contents.identity);
}

void Journal::append(std::size_t tensor, const FinishedTensor& finished) { append_line(json_of(tensor, finished)); }

void Journal::append_layer(std::int64_t layer, const json& calibrated) {
  append_line({{"layer", layer}, {"calibrated", calibrated}});
}

void Journal::append_line(const json& value) {
  const std::string line = line_of(value);
  file_.write(size_bytes_, std::as_bytes(std::span(line)));
  size_bytes_ += line.size();
}

}  // namespace halfbyte::convert

// Manifest -> text of halfbyte.json. One line a tensor, so that people can read it and diff can compare it.
#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "loader/files/hash.h"
#include "loader/files/manifest.h"
#include "loader/files/manifest_keys.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

std::string text(const ordered_json& value) { return value.dump(); }

// What most packed tensors of a scheme have; the others say theirs in their own record.
struct SchemeDefaults {
  std::int64_t group_size = 0;
  Dtype scale_dtype = Dtype::kBfloat16;
};
using DefaultsOf = std::map<const Scheme*, SchemeDefaults>;

template <class Value>
Value most_common(const std::map<Value, int>& counts) {
  return std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })->first;
}

DefaultsOf defaults(const Manifest& manifest) {
  std::map<const Scheme*, std::map<std::int64_t, int>> group_sizes;
  std::map<const Scheme*, std::map<Dtype, int>> scale_dtypes;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!tensor.scheme) continue;
    ++group_sizes[tensor.scheme][tensor.group_size];
    ++scale_dtypes[tensor.scheme][tensor.scale_dtype];
  }
  DefaultsOf out;
  for (const auto& [scheme, counts] : group_sizes) {
    out[scheme] = {most_common(counts), most_common(scale_dtypes[scheme])};
  }
  return out;
}

ordered_json dtype_or_null(const std::optional<Dtype>& dtype) {
  return dtype ? ordered_json(name(*dtype)) : ordered_json(nullptr);
}

ordered_json source(const Manifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const SourceFile& file : manifest.source_files) {
    ordered_json entry{{"name", file.name}, {"bytes", file.size_bytes}};
    if (!file.xxh3_128.empty()) entry["xxh3_128"] = file.xxh3_128;
    files.push_back(std::move(entry));
  }
  return {{"kind", manifest.source_kind},
          {"files", std::move(files)},
          {"declared_dtype", dtype_or_null(manifest.declared_dtype)}};
}

ordered_json scheme_table(const DefaultsOf& defaults) {
  ordered_json out = ordered_json::object();
  for (const Scheme& scheme : schemes()) {
    const auto found = defaults.find(&scheme);
    if (found == defaults.end()) continue;
    ordered_json& row = out[std::string(scheme.name)];
    row = {{"bits", scheme.bits},
           {"group_size", found->second.group_size},
           {name(Part::kZeroPoint), has_part(scheme, Part::kZeroPoint)},
           {"scale_dtype", name(found->second.scale_dtype)}};
    for (const Part part : kDeclaredParts) {
      if (has_part(scheme, part)) row[std::string(name(part))] = true;
    }
    if (scheme.codebook) row["codebook"] = *scheme.codebook;
    if (scheme.shift != 0) row["shift"] = scheme.shift;
  }
  return out;
}

ordered_json parts(const TensorParts& parts) {
  ordered_json out = ordered_json::object();
  for (std::size_t i = 0; i < kPartCount; ++i) {
    if (!parts.names[i].empty()) out[std::string(name(static_cast<Part>(i)))] = parts.names[i];
  }
  return out;
}

// JSON has no other numbers than finite ones.
bool is_known(const std::optional<RecordedError>& error) {
  return error && std::isfinite(error->rel_rmse) && std::isfinite(error->max_abs);
}

ordered_json record(const TensorRecord& tensor, const DefaultsOf& defaults) {
  ordered_json out{{"kind", tensor.is_buffer ? "buffer" : "parameter"},
                   {"shape", tensor.shape},
                   {"original_dtype", dtype_or_null(tensor.original_dtype)},
                   {"stored", tensor.scheme ? tensor.scheme->name : name(tensor.stored_dtype)}};
  if (tensor.scheme) {
    const SchemeDefaults& usual = defaults.at(tensor.scheme);
    if (tensor.group_size != usual.group_size) out["group_size"] = tensor.group_size;
    if (tensor.scale_dtype != usual.scale_dtype) out["scale_dtype"] = name(tensor.scale_dtype);
  }
  if (tensor.nested_offset) out["nested_offset"] = *tensor.nested_offset;
  out["parts"] = parts(tensor.parts);
  out["bytes"] = tensor.size_bytes;
  if (!tensor.xxh3_128.empty()) out["xxh3_128"] = tensor.xxh3_128;
  if (is_known(tensor.error)) out["error"] = {{"rel_rmse", tensor.error->rel_rmse}, {"max_abs", tensor.error->max_abs}};
  return out;
}

ordered_json buffer(const models::DerivedBuffer& buffer) {
  return {
      {"original_dtype", name(buffer.original_dtype)}, {"how", buffer.how}, {"inputs", ordered_json(*buffer.inputs)}};
}

ordered_json file(const FileRecord& file) {
  ordered_json out{{"name", file.name}, {"bytes", file.size_bytes}, {"hashed_bytes", file.hashed_bytes}};
  if (!file.xxh3_128.empty()) out["xxh3_128"] = file.xxh3_128;
  return out;
}

// Joins `lines` one a line. Not one ordered_json object: that one compares every new key with all before it.
std::string block(char open, const std::vector<std::string>& lines, char close) {
  if (lines.empty()) return {open, close};
  std::string out(1, open);
  for (const std::string& line : lines) out += (&line == &lines.front() ? "\n  " : ",\n  ") + line;
  return out + "\n " + close;
}

std::string member(const std::string& key, const ordered_json& value) { return text(key) + ": " + text(value); }

template <class Range, class Line>
std::vector<std::string> lines(const Range& range, Line line) {
  std::vector<std::string> out;
  for (const auto& item : range) out.push_back(line(item));
  return out;
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  const DefaultsOf usual = defaults(manifest);
  std::string out = "{\n";
  const auto add = [&](const char* key, const std::string& value) {
    out += " \"" + std::string(key) + "\": " + value + ",\n";
  };
  add("format", text(kFormatName));
  add("format_version", text(kFormatVersion));
  add("created_by", text(manifest.created_by));
  add("source", text(source(manifest)));
  if (!manifest.conversion->is_null()) add("conversion", manifest.conversion->dump());
  add("schemes", text(scheme_table(usual)));
  add("tensors",
      block('{', lines(manifest.tensors, [&](const auto& t) { return member(t.name, record(t, usual)); }), '}'));
  add("buffers", block('{', lines(manifest.buffers, [](const auto& b) { return member(b.name, buffer(b)); }), '}'));
  add("ties", text(manifest.ties));
  add("kept", block('{', lines(manifest.kept, [](const auto& k) { return member(k.first, k.second); }), '}'));
  add("dtype", text({{"recommended", manifest.recommended_dtype}, {"keep_float32", manifest.keep_float32}}));
  add("files", block('[', lines(manifest.files, [](const auto& f) { return text(file(f)); }), ']'));
  out.append(kHashKey);
  std::string zeroed = out;
  zeroed.append(kHashDigits, '0').append(kHashEnding);
  return out.append(hash_hex(zeroed)).append(kHashEnding);
}

bool manifest_hash_matches(std::string_view json) {
  const std::size_t tail = kHashKey.size() + kHashDigits + kHashEnding.size();
  if (json.size() < tail || !json.ends_with(kHashEnding)) return false;
  if (json.substr(json.size() - tail, kHashKey.size()) != kHashKey) return false;
  const std::size_t digits_at = json.size() - kHashEnding.size() - kHashDigits;
  std::string zeroed(json);
  zeroed.replace(digits_at, kHashDigits, kHashDigits, '0');
  return hash_hex(zeroed) == json.substr(digits_at, kHashDigits);
}

}  // namespace halfbyte::files

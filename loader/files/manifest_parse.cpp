// Text of halfbyte.json -> Manifest. Ranges are checked here; manifest_check.cpp compares with the files described.
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/hash.h"
#include "loader/files/json_text.h"
#include "loader/files/manifest.h"
#include "loader/files/manifest_keys.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "models/json/field.h"

namespace halfbyte::files {
namespace {

[[noreturn]] void unsupported(const JsonField& field, const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              field.path() + ": " + what + " is unknown to this version of halfbyte; use a newer one");
}

void check_format(const JsonField& root) {
  const JsonField format = root.at("format");
  if (format.string() != kFormatName) format.fail_wanting('"' + std::string(kFormatName) + '"');
  const JsonField version = root.at("format_version");
  const std::int64_t number = version.integer(0);
  if (number != kFormatVersion) unsupported(version, "format version " + std::to_string(number));
}

Dtype dtype(const JsonField& field) {
  const auto found = dtype_from_name(field.string());
  if (!found) unsupported(field, "dtype " + in_quotes(field.string()));
  return *found;
}

// uint8: nested scales, or bits.
Dtype scale_dtype(const JsonField& field, const Scheme& scheme) {
  const Dtype found = dtype(field);
  if (has_scale_dtype(scheme, found)) return found;
  std::string known;
  for (const Dtype each : scheme.scale_dtypes) known += (known.empty() ? "" : " or ") + std::string(name(each));
  field.fail_wanting(known + ", which " + std::string(scheme.name) + " has");
}

std::optional<Dtype> optional_dtype(const std::optional<JsonField>& field) {
  return field ? std::optional(dtype(*field)) : std::nullopt;
}

std::string optional_string(const std::optional<JsonField>& field) { return field ? field->string() : std::string(); }

std::string optional_hash(const std::optional<JsonField>& field) {
  if (field && !is_hash_hex(field->string())) field->fail_wanting("32 lower-case hexadecimal digits");
  return optional_string(field);
}

std::vector<std::string> strings(const std::optional<JsonField>& field) {
  std::vector<std::string> out;
  if (!field) return out;
  for (const JsonField& item : field->items()) out.push_back(item.string());
  return out;
}

void read_source(const JsonField& source, Manifest& out) {
  out.source_kind = source.at("kind").string();
  out.declared_dtype = optional_dtype(source.find("declared_dtype"));
  for (const JsonField& file : source.at("files").items()) {
    out.source_files.push_back(
        {file.at("name").string(), file.at("bytes").size(), optional_hash(file.find("xxh3_128"))});
  }
}

struct SchemeDefaults {
  const Scheme* scheme;
  std::int64_t group_size;
  Dtype scale_dtype;
};

// A table of values is part of the scheme's name: other values are another scheme.
void check_codebook(const JsonField& row, const Scheme& scheme) {
  const auto field = row.find("codebook");
  if (field.has_value() != (scheme.codebook != nullptr))
    row.fail_wanting(scheme.codebook ? "a \"codebook\"" : "no \"codebook\"");
  if (!field) return;
  const auto values = field->items();
  bool is_same = values.size() == scheme.codebook->size();
  for (std::size_t i = 0; is_same && i < values.size(); ++i)
    is_same = static_cast<float>(values[i].number()) == (*scheme.codebook)[i];
  if (!is_same) field->fail_wanting("the sixteen values of " + std::string(scheme.name));
}

// So is what is added to it.
void check_shift(const JsonField& row, const Scheme& scheme) {
  const auto field = row.find("shift");
  if ((field ? field->integer(-128, 127) : 0) == scheme.shift) return;
  (field ? *field : row)
      .fail_wanting(scheme.shift != 0 ? "a \"shift\" of " + std::to_string(scheme.shift) : "no \"shift\"");
}

void check_declared_parts(const JsonField& row, const Scheme& scheme) {
  const std::string title(scheme.name);
  const JsonField zero_point = row.at("zero_point");
  const bool has_zero_point = has_part(scheme, Part::kZeroPoint);
  if (zero_point.boolean() != has_zero_point)
    zero_point.fail_wanting(has_zero_point ? "true, " + title + " has zero points"
                                           : "false, " + title + " has no zero points");
  for (const Part part : kDeclaredParts) {
    const std::string key(name(part));
    const auto field = row.find(key);
    if ((field && field->boolean()) == has_part(scheme, part)) continue;
    row.fail_wanting(has_part(scheme, part) ? '"' + key + "\": true, " + title + " has " + key + 's'
                                            : "no \"" + key + "\" in " + title);
  }
}

std::map<std::string, SchemeDefaults> read_schemes(const JsonField& table) {
  std::map<std::string, SchemeDefaults> out;
  for (const auto& [name, field] : table.members()) {
    const Scheme* scheme = find_scheme(name);
    if (!scheme) unsupported(field, "scheme " + in_quotes(name));
    const JsonField bits = field.at("bits");
    if (bits.integer(1, 32) != scheme->bits) bits.fail_wanting(std::to_string(scheme->bits));
    check_declared_parts(field, *scheme);
    check_codebook(field, *scheme);
    check_shift(field, *scheme);
    out[name] = {scheme, field.at("group_size").integer(1), scale_dtype(field.at("scale_dtype"), *scheme)};
  }
  return out;
}

void read_stored(const JsonField& field, const std::map<std::string, SchemeDefaults>& schemes, TensorRecord& out) {
  const JsonField stored = field.at("stored");
  const auto defaults = schemes.find(stored.string());
  if (defaults == schemes.end()) {
    if (find_scheme(stored.string())) stored.fail_wanting("a scheme that \"schemes\" describes");
    const auto dense = dtype_from_name(stored.string());
    if (!dense) unsupported(stored, "scheme or dtype " + in_quotes(stored.string()));
    out.stored_dtype = *dense;
    return;
  }
  out.scheme = defaults->second.scheme;
  const auto group_size = field.find("group_size");
  out.group_size = group_size ? group_size->integer(1) : defaults->second.group_size;
  const auto scales = field.find("scale_dtype");
  out.scale_dtype = scales ? scale_dtype(*scales, *out.scheme) : defaults->second.scale_dtype;
}

void read_parts(const JsonField& parts, TensorRecord& out) {
  out.parts[Part::kCodes] = parts.at("codes").string();
  for (std::size_t i = 1; i < kPartCount; ++i) {
    const Part part = static_cast<Part>(i);
    const auto field = parts.find(std::string(name(part)));
    out.parts[part] = optional_string(field);
    const bool is_needed = is_needed_part(out, part);
    if (is_needed == field.has_value() || (field && can_have_part(out, part))) continue;
    parts.fail_wanting((is_needed ? "a \"" : "no \"") + std::string(name(part)) + '"');
  }
}

float float_number(const JsonField& field) {
  const auto out = static_cast<float>(field.number());
  if (!std::isfinite(out)) field.fail_wanting("a number that float32 holds");
  return out;
}

TensorRecord read_tensor(const std::string& name, const JsonField& field,
                         const std::map<std::string, SchemeDefaults>& schemes) {
  TensorRecord out;
  out.name = name;
  const JsonField kind = field.at("kind");
  out.is_buffer = kind.string() == "buffer";
  if (!out.is_buffer && kind.string() != "parameter") kind.fail_wanting("\"parameter\" or \"buffer\"");
  out.shape = field.at("shape").shape();
  out.original_dtype = optional_dtype(field.find("original_dtype"));
  read_stored(field, schemes, out);
  if (const auto offset = field.find("nested_offset")) out.nested_offset = float_number(*offset);
  const bool is_nested = out.scheme && has_part(*out.scheme, Part::kNestedScale) && out.scale_dtype == Dtype::kUint8;
  if (out.scheme && out.nested_offset.has_value() != is_nested)
    field.fail_wanting("a \"nested_offset\" with scales in uint8, and only with them");
  read_parts(field.at("parts"), out);
  out.size_bytes = field.at("bytes").size();
  out.xxh3_128 = optional_hash(field.find("xxh3_128"));
  if (const auto error = field.find("error")) {
    out.error = RecordedError{error->at("rel_rmse").number(), error->at("max_abs").number()};
    if (out.error->rel_rmse < 0 || out.error->max_abs < 0) error->fail_wanting("numbers from 0 on");
  }
  return out;
}

void read_ties(const JsonField& ties, Manifest& out) {
  for (const JsonField& pair : ties.items()) {
    const auto names = pair.items();
    if (names.size() != 2) pair.fail_wanting("two names, alias and owner");
    out.ties.emplace_back(names[0].string(), names[1].string());
  }
}

void read_dtype(const JsonField& field, Manifest& out) {
  if (const auto recommended = field.find("recommended")) out.recommended_dtype = recommended->string();
  out.keep_float32 = strings(field.find("keep_float32"));
}

void read_files(const JsonField& files, Manifest& out) {
  for (const JsonField& file : files.items()) {
    FileRecord record{file.at("name").string(), file.at("bytes").size(), 0, optional_hash(file.find("xxh3_128"))};
    if (!is_plain_file_name(record.name)) file.at("name").fail_wanting("a file's name without folders");
    const JsonField hashed = file.at("hashed_bytes");
    record.hashed_bytes = hashed.size();
    if (record.hashed_bytes > record.size_bytes) hashed.fail_wanting("at most \"bytes\"");
    out.files.push_back(std::move(record));
  }
}

}  // namespace

Manifest parse_manifest(std::string_view json, const std::string& file_name) {
  const auto tree = parse_json<nlohmann::json>(json, file_name, kManifestLimits);
  const JsonField root(tree, file_name);
  check_format(root);
  Manifest out;
  if (const auto minor = root.find("format_minor")) out.format_minor = minor->integer(0);
  out.created_by = optional_string(root.find("created_by"));
  read_source(root.at("source"), out);
  if (const auto conversion = root.find("conversion")) {
    if (!conversion->json().is_object()) conversion->fail_wanting("an object");
    out.conversion = conversion->json();
  }
  const auto schemes = read_schemes(root.at("schemes"));
  for (const auto& [name, field] : root.at("tensors").members())
    out.tensors.push_back(read_tensor(name, field, schemes));
  std::ranges::sort(out.tensors, {}, &TensorRecord::name);
  if (const auto buffers = root.find("buffers")) {
    for (const auto& [name, field] : buffers->members()) {
      out.buffers.push_back({name, dtype(field.at("original_dtype")), field.at("how").string(),
                             models::HeldJson(field.at("inputs").json())});
    }
  }
  if (const auto ties = root.find("ties")) read_ties(*ties, out);
  if (const auto kept = root.find("kept")) {
    for (const auto& [name, field] : kept->members()) out.kept[name] = field.string();
  }
  if (const auto field = root.find("dtype")) read_dtype(*field, out);
  if (const auto files = root.find("files")) read_files(*files, out);
  return out;
}

}  // namespace halfbyte::files

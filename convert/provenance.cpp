#include "convert/provenance.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "convert/calibrator.h"
#include "convert/merge/merge_record.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using nlohmann::json;

constexpr int kIdentityVersion = 1;
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

std::string hash_of_start(const files::DataFile& file, std::uint64_t size, const std::stop_token& stop) {
  files::Hash128 hash;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    if (stop.stop_requested()) throw Error(ErrorCode::kInterrupted, "stopped while reading the source");
    block.resize(std::min(kBlockBytes, size - at));
    file.read(at, block);
    hash.update(block);
  }
  return hash.hex();
}

json source_files(const files::Checkpoint& source) {
  json out = json::object();
  for (std::size_t i = 0; i < source.data_files.size(); ++i) {
    const files::DataFile& file = *source.data_files[i];
    if (!file.is_on_disk()) continue;
    out[file.path().filename().string()] = {{"bytes", file.size_bytes()},
                                            {"header", hash_of_start(file, source.data_offsets[i], {})}};
  }
  return out;
}

json result_headers(const ResultLayout& layout) {
  json out = json::object();
  for (const DataFileLayout& file : layout.files) out[file.name] = files::hash_hex(file.header);
  return out;
}

std::string text_of(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? "not set" : files::printable(found->dump(), 100);
}

// Goes down into objects, to the first pair that differs.
std::string first_difference(const json& there, const json& here) {
  json both = there;
  both.update(here);
  for (const auto& [key, ignored] : both.items()) {
    if (there.contains(key) && here.contains(key)) {
      if (there[key] == here[key]) continue;
      if (there[key].is_object() && here[key].is_object()) return key + ": " + first_difference(there[key], here[key]);
    }
    return files::printable(key) + " is " + text_of(there, key) + " there and " + text_of(here, key) + " here";
  }
  return "nothing";
}

std::optional<std::string> source_difference(const files::Manifest& there, const files::Checkpoint& source,
                                             const std::stop_token& stop) {
  const auto on_disk = std::ranges::count_if(source.data_files, [](const auto& file) { return file->is_on_disk(); });
  if (static_cast<std::ptrdiff_t>(there.source_files.size()) != on_disk) return "the source has other files";
  for (std::size_t i = 0; i < there.source_files.size(); ++i) {
    const files::DataFile& file = *source.data_files[i];  // translated ones come last
    const files::SourceFile& recorded = there.source_files[i];
    const std::string name = file.path().filename().string();
    const bool is_hashed = !recorded.xxh3_128.empty();
    if (recorded.name != name || recorded.size_bytes != file.size_bytes() ||
        (is_hashed && recorded.xxh3_128 != hash_of_start(file, file.size_bytes(), stop)))
      return "the source's " + files::printable(name) + " is another";
  }
  return std::nullopt;
}

bool has_headers(const files::Manifest& there, const ResultLayout& layout) {
  return std::ranges::all_of(layout.files, [&](const DataFileLayout& file) {
    const auto record = std::ranges::find(there.files, file.name, &files::FileRecord::name);
    return record != there.files.end() && record->size_bytes == file.size_bytes &&
           record->xxh3_128 == files::hash_hex(file.header);
  });
}

std::string_view name_of(quant::Search search) {
  return std::ranges::find(quant::searches(), search, &quant::SearchName::search)->name;
}

// Without each tensor's losses: what was chosen of them stands with the tensors.
json budget_record(const Mix& mix) {
  json out{{"bits_per_weight", mix.bits()}, {"predicted_kl", mix.loss}, {"measured", *mix.measured}};
  if (mix.target_bpw > 0) out["target_bpw"] = mix.target_bpw;
  if (mix.target_size > 0) out["target_size"] = mix.target_size;
  for (const MixRow& row : mix.rows) {
    out["ways"][row.stored_as] = {{"tensors", row.tensors},
                                  {"predicted_kl", row.loss},
                                  {"bits_of_all", row.bits_of_all},
                                  {"predicted_kl_of_all", row.loss_of_all}};
  }
  return out;
}

}  // namespace

std::string program_and_version() { return "halfbyte " HALFBYTE_VERSION; }

bool chooses_codes(const QuantizeOptions& options) noexcept {
  return options.calibrator || options.sensitivity || !options.choices.empty() || options.scheme ||
         options.group_size || options.search || options.nested_scales || !options.keep.empty() ||
         !options.scheme_for.empty() || options.embedding || options.head;
}

bool may_requantize(const QuantizeOptions& options) noexcept {
  if (options.keep_packed) return false;
  return options.requantize || (options.keep_codes && chooses_codes(options));
}

json conversion_record(const QuantizeOptions& options) {
  if (options.merge) {  // schemes are the source's, and the result's headers have them
    json out{{options.merge->key, *options.merge->record}};
    if (!options.choices.empty()) out["search"] = name_of(options.search.value_or(kDefaultSearch));
    if (options.shard_size > 0) out["shard_size"] = options.shard_size;
    return out;
  }
  const std::string name_of_scheme = options.scheme.value_or(kDefaultScheme);
  const Scheme* scheme = find_scheme(name_of_scheme);
  json out{{"scheme", name_of_scheme},
           {"group_size", options.group_size.value_or(scheme ? scheme->default_group : kDefaultGroupSize)},
           {"search", name_of(options.search.value_or(kDefaultSearch))},
           {"keep", options.keep},
           {"scheme_for", options.scheme_for}};
  if (options.embedding) out["embedding"] = *options.embedding;
  if (options.head) out["head"] = *options.head;
  if (options.calibrator) out["calibration"] = options.calibrator->record();
  if (options.mix) out["budget"] = budget_record(*options.mix);
  if (options.nested_scales) out["nested_scales"] = true;
  if (options.halfbyte_only) out["halfbyte_only"] = true;
  if (may_requantize(options)) out["requantize"] = true;
  if (options.keep_packed) out["keep_packed"] = true;
  if (options.shard_size > 0) out["shard_size"] = options.shard_size;
  if (options.assume_original) out["assume_original"] = name(*options.assume_original);
  return out;
}

json identity_of(const files::Checkpoint& source, const ResultLayout& layout, const QuantizeOptions& options) {
  return {{"journal", kIdentityVersion},
          {"program", program_and_version()},
          {"conversion", conversion_record(options)},
          {"source", source_files(source)},
          {"result", result_headers(layout)}};
}

std::optional<std::string> difference(const json& there, const json& here) {
  if (there == here) return std::nullopt;
  return first_difference(there, here);
}

std::optional<Text> difference_from_complete(const files::fs::path& destination, const files::Checkpoint& source,
                                             const ResultLayout& layout, const QuantizeOptions& options) try {
  const files::Checkpoint there = files::open_checkpoint(destination);
  if (there.manifest.is_derived) return "it has no halfbyte.json";
  json identity{{"program", there.manifest.created_by}, {"conversion", *there.manifest.conversion}};
  if (options.merge && identity["conversion"].contains(options.merge->key))
    identity["conversion"][options.merge->key].erase(kMergedTensors);
  if (auto found =
          difference(identity, {{"program", program_and_version()}, {"conversion", conversion_record(options)}}))
    return found;
  if (!has_headers(there.manifest, layout)) return "its tensors are others";
  return source_difference(there.manifest, source, options.stop);
} catch (const Error& error) {
  if (error.code() == ErrorCode::kInterrupted) throw;
  return error.text();
}

}  // namespace halfbyte::convert

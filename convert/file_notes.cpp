#include "convert/file_notes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/family.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {

std::string listed(const std::vector<files::fs::path>& names) {
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + files::printable_path(name);
  return out;
}

std::string counted_tensors(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
}

namespace {

void check_name(const files::fs::path& directory, const files::fs::path& name) try {
  static_cast<void>(nlohmann::json(name.string()).dump());
} catch (const nlohmann::json::type_error&) {
  throw Error(ErrorCode::kUnsupported, files::printable_path(directory / name) +
                                           ": the name is not UTF-8, and a checkpoint's record names its files so; "
                                           "rename it");
}

constexpr auto kQuantizationFiles =
    std::to_array<std::string_view>({"quantization_config.json", "quantize_config.json", "quant_config.json",
                                     "load_keys.json", "bigdl_config.json", "hf_quant_config.json"});

}  // namespace

bool is_quantization_file(const files::fs::path& name) {
  return std::ranges::find(kQuantizationFiles, name.string()) != kQuantizationFiles.end();
}

std::vector<Text> file_notes(const files::Checkpoint& source) {
  for (const auto& name : source.side_files) check_name(source.directory, name);
  for (const auto& file : source.data_files) check_name(source.directory, file->path().filename());
  std::vector<Text> out(source.notes.begin(), source.notes.end());
  if (!source.remote_code.empty()) {
    out.push_back("code is never copied: " + listed(source.remote_code) +
                  (files::names_remote_code(source) ? "; config.json still names it (auto_map)" : ""));
  }
  if (!source.other_weights.empty())
    out.push_back("other weight files are not copied: " + listed(source.other_weights));
  return out;
}

}  // namespace halfbyte::convert

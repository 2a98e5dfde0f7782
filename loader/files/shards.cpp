#include "loader/files/shards.h"

#include <cstdio>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/json_text.h"
#include "loader/files/links.h"
#include "loader/files/printable.h"
#include "models/json/field.h"

namespace halfbyte::files {
namespace {

// N of "model-00001-of-0000N.safetensors".
std::optional<std::size_t> shard_count(const std::string& name) {
  const auto at = name.rfind("-of-");
  unsigned long count = 0;
  char dot = 0;
  if (at == std::string::npos || std::sscanf(name.c_str() + at, "-of-%lu%c", &count, &dot) != 2 || dot != '.')
    return std::nullopt;
  return count;
}

}  // namespace

ShardIndex read_shard_index(const fs::path& directory, const char* index_file, std::string_view extension) {
  const fs::path path = directory / index_file;
  const std::string file = printable_path(path);
  const auto tree = parse_json<nlohmann::json>(read_text(path, kManifestLimits.max_bytes), file, kManifestLimits);
  ShardIndex out;
  std::set<std::string> shards;
  for (const auto& [tensor, field] : JsonField(tree, file).at("weight_map").members()) {
    const std::string& shard = field.string();
    if (!is_plain_file_name(shard) || !shard.ends_with(extension))
      field.fail_wanting("the name of a " + std::string(extension) + " file in the same folder");
    const bool is_new = shards.insert(shard).second;
    if (is_new) check_link(directory, shard);
    if (is_new && !files::is_regular_file(directory / shard)) {
      throw Error(ErrorCode::kCorrupt, printable_path(directory) + ": shard " + printable(shard) +
                                           " is missing; the index names it for tensor " + in_quotes(tensor) +
                                           ". Download it again");
    }
    out.weight_map.emplace(tensor, shard);
  }
  out.shards.assign(shards.begin(), shards.end());
  return out;
}

void check_shard_count(const fs::path& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto wanted = shard_count(name);
    if (!wanted || *wanted == names.size()) continue;
    throw Error(ErrorCode::kCorrupt, printable_path(directory) + ": " + printable(name) + " is one of " +
                                         std::to_string(*wanted) + " shards, " + std::to_string(names.size()) +
                                         " are here; download the missing ones");
  }
}

}  // namespace halfbyte::files

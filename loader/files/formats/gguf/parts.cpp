#include "loader/files/formats/gguf/parts.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr int kMaxParts = 4096;

// "NAME-00002-of-00003.gguf", counted from 1.
struct PartName {
  std::string model;
  int number;
  int count;
};

std::optional<PartName> part_name(const std::string& name) {
  constexpr std::size_t kLength = std::string_view("-00001-of-00002.gguf").size();
  if (name.size() <= kLength) return std::nullopt;
  const std::string tail = name.substr(name.size() - kLength);
  PartName out{name.substr(0, name.size() - kLength), 0, 0};
  int end = 0;
  const bool is_part = std::sscanf(tail.c_str(), "-%5d-of-%5d.gguf%n", &out.number, &out.count, &end) == 2;
  if (!is_part || static_cast<std::size_t>(end) != kLength || out.number < 1 || out.number > out.count ||
      out.count > kMaxParts) {
    return std::nullopt;
  }
  return out;
}

std::string file_name(const PartName& part, int number) {
  std::array<char, 32> tail{};
  std::snprintf(tail.data(), tail.size(), "-%05d-of-%05d.gguf", number, part.count);
  return part.model + tail.data();
}

std::vector<std::string> all_parts(const PartName& part) {
  std::vector<std::string> out;
  for (int number = 1; number <= part.count; ++number) out.push_back(file_name(part, number));
  return out;
}

void check_part(const GgufParts& parts, std::size_t index) {
  const GgufFile& part = parts[index];
  const std::int64_t count = part.integer("split.count").value_or(0), number = part.integer("split.no").value_or(-1);
  if (count == std::ssize(parts) && number == static_cast<std::int64_t>(index)) return;
  part.fail(ErrorCode::kCorrupt, "is named as part " + std::to_string(index + 1) + " of " +
                                     std::to_string(parts.size()) + ", but says that it is part " +
                                     std::to_string(number + 1) + " of " + std::to_string(count));
}

void check_parts(const GgufParts& parts) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_part(parts, i);
    for (const GgufTensor& tensor : parts[i].tensors()) {
      if (!names.insert(tensor.name).second)
        parts[i].fail(ErrorCode::kCorrupt, "tensor " + in_quotes(tensor.name) + " is in an earlier part too");
    }
  }
  const auto wanted = parts.front().integer("split.tensors.count");
  if (!wanted || *wanted == std::ssize(names)) return;
  parts.front().fail(ErrorCode::kCorrupt, "the parts have " + std::to_string(names.size()) + " tensors, of " +
                                              std::to_string(*wanted) + " on record; download them again");
}

// Images' projectors and importance matrices lie beside models.
bool is_model(const fs::path& path) {
  const InputFile file(path);
  return starts_as_gguf(file) && !path.filename().string().starts_with("mmproj");
}

}  // namespace

std::vector<std::string> choose_gguf_files(const fs::path& directory, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> models;  // by the first file's name
  for (const std::string& name : names) {
    if (!name.ends_with(".gguf") || !is_model(directory / name)) continue;
    const auto part = part_name(name);
    models[part ? file_name(*part, 1) : name] = part ? all_parts(*part) : std::vector{name};
  }
  if (models.size() > 1)
    throw Error(ErrorCode::kUnsupported, printable_path(directory) + ": has " + std::to_string(models.size()) +
                                             " GGUF models; give one of the files");
  return models.empty() ? std::vector<std::string>() : models.begin()->second;
}

GgufParts open_gguf_parts(const fs::path& path) {
  GgufParts out;
  const auto part = part_name(path.filename().string());
  if (!part) {
    out.emplace_back(std::make_shared<InputFile>(path));
    if (const std::int64_t count = out.front().integer("split.count").value_or(1); count > 1) {
      out.front().fail(ErrorCode::kCorrupt, "is one of " + std::to_string(count) +
                                                " parts, and its name does not say which: give it back its name");
    }
    return out;
  }
  for (const std::string& name : all_parts(*part)) {
    const fs::path file = path.parent_path() / name;
    if (!files::is_regular_file(file)) {
      throw Error(ErrorCode::kCorrupt, printable_path(path) + ": is one of " + std::to_string(part->count) +
                                           " parts, and " + printable(name) + " is missing; download it again");
    }
    out.emplace_back(std::make_shared<InputFile>(file));
  }
  check_parts(out);
  return out;
}

}  // namespace halfbyte::files

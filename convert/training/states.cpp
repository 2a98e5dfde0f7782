#include "convert/training/states.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>

#include <halfbyte/error.h>

#include "convert/training/tensor_file.h"
#include "loader/files/file_tree.h"
#include "loader/files/hash.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::fs::path;
using nlohmann::json;

constexpr const char* kParameters = "parameters.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kRecord = "state.json";
constexpr const char* kPrefix = "step-";
constexpr const char* kNew = ".new";  // of a folder that is being written

// Of a folder of that name; nothing: it is none.
std::optional<std::int64_t> step_of(const std::string& name) {
  const std::size_t begin = std::string_view(kPrefix).size();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t out = 0;
  const char* end = name.data() + name.size();
  const auto found = std::from_chars(name.data() + begin, end, out);
  return found.ec == std::errc() && found.ptr == end && out >= 0 ? std::optional(out) : std::nullopt;
}

void write_text(const path& file, const std::string& text) {
  files::OutputFile out(file, text.size());
  out.write(0, std::as_bytes(std::span(text)));
  out.sync();
}

// The record with its own hash before it, as lines.
std::string sealed(const json& record) {
  const std::string text = record.dump();
  return files::hash_hex(text) + "\n" + text + "\n";
}

json unsealed(const path& file) {
  constexpr files::JsonLimits kLimits{.max_bytes = 256'000'000};
  const std::string all = files::read_text(file, kLimits.max_bytes), name = files::printable_path(file);
  const std::size_t line = all.find('\n');
  if (line == std::string::npos || all.empty() || all.back() != '\n')
    throw Error(ErrorCode::kCorrupt, name + ": it is cut short");
  const std::string text = all.substr(line + 1, all.size() - line - 2);
  if (files::hash_hex(text) != all.substr(0, line))
    throw Error(ErrorCode::kCorrupt, name + ": its bytes are not those that were written");
  return files::parse_json<json>(text, name, kLimits);
}

TrainingState read_state(const path& folder, std::int64_t step) {
  const json record = unsealed(folder / kRecord);
  return {step, record.at("record"), read_tensors(folder / kParameters, record.at("parameters").get<std::string>()),
          read_tensors(folder / kOptimizer, record.at("optimizer").get<std::string>())};
}

}  // namespace

path TrainingStates::path_of(std::int64_t step) const {
  char name[32];
  std::snprintf(name, sizeof name, "%s%08lld", kPrefix, static_cast<long long>(step));
  return folder_ / name;
}

std::vector<std::int64_t> TrainingStates::steps() const {
  std::vector<std::int64_t> out;
  if (!files::is_directory(folder_)) return out;
  for (const path& entry : files::entries(folder_)) {
    if (const auto step = step_of(entry.filename().string())) out.push_back(*step);
  }
  std::ranges::sort(out);
  return out;
}

bool TrainingStates::is_there() const { return !steps().empty(); }

std::optional<TrainingState> TrainingStates::newest(std::vector<Text>& notes) const {
  std::vector<std::int64_t> all = steps();
  for (; !all.empty(); all.pop_back()) {
    try {
      return read_state(path_of(all.back()), all.back());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt && error.code() != ErrorCode::kNotFound) throw;
      notes.push_back(Text("what was written after step " + std::to_string(all.back()) + " cannot be gone on from: ") +
                      error.text());
    } catch (const json::exception& error) {
      notes.push_back(files::printable_path(path_of(all.back())) + ": " + files::json_problem(error));
    }
  }
  return std::nullopt;
}

void TrainingStates::write(const TrainingState& state) const {
  files::make_directory(folder_);
  const path final = path_of(state.step), fresh = final.string() + kNew;
  files::remove_tree(fresh);
  files::make_directory(fresh);
  json record;
  record["record"] = state.record;
  record["parameters"] = write_tensors(fresh / kParameters, state.parameters);
  record["optimizer"] = write_tensors(fresh / kOptimizer, state.optimizer);
  write_text(fresh / kRecord, sealed(record));
  files::sync_directory(fresh);
  files::remove_tree(final);
  files::rename_new(fresh, final);
  files::sync_directory(folder_);
  std::vector<std::int64_t> old = steps();
  for (auto left = static_cast<std::int64_t>(old.size()); left > keep_; --left)
    files::remove_tree(path_of(old[old.size() - static_cast<std::size_t>(left)]));
}

}  // namespace halfbyte::convert

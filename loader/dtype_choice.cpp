#include "loader/dtype_choice.h"

#include <algorithm>
#include <ranges>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte {
namespace {

constexpr const char* kPromoted = "the recorded dtypes, promoted where two meet";

template <class Names>
bool matches_any(std::string_view pattern, const Names& names) {
  return std::ranges::any_of(names, [&](const auto& name) { return matches_tensor_or_module(pattern, name); });
}

}  // namespace

bool matches_tensor_or_module(std::string_view pattern, std::string_view tensor_name) noexcept {
  while (true) {
    if (files::matches_pattern(pattern, tensor_name)) return true;
    const std::size_t dot = tensor_name.rfind('.');
    if (dot == std::string_view::npos) return false;
    tensor_name = tensor_name.substr(0, dot);
  }
}

std::string dtype_text(std::optional<Dtype> dtype) { return dtype ? std::string(name(*dtype)) : kPromoted; }

void add_note(LoadedTensor& line, const std::string& note) {
  if (note.empty()) return;
  line.note += (line.note.empty() ? "" : "; ") + note;
}

std::vector<std::string> DtypeChoice::names_of(const std::string& name) const {
  const auto& ties = checkpoint_.manifest.ties;
  const auto tie = std::ranges::find(ties, name, &std::pair<std::string, std::string>::first);
  std::vector<std::string> names{tie == ties.end() ? name : tie->second};
  for (const auto& [alias, owner] : ties) {
    if (owner == names.front()) names.push_back(alias);
  }
  return names;
}

bool DtypeChoice::is_kept_float32(const std::string& name) const {
  const auto names = names_of(name);
  const auto matches = [&](const std::string& pattern) { return matches_any(pattern, names); };
  return std::ranges::any_of(checkpoint_.manifest.keep_float32, matches) ||
         std::ranges::any_of(options_.keep_float32, matches);
}

DtypeChoice::Chosen DtypeChoice::of(const std::string& name) const {
  if (is_kept_float32(name)) return {DtypePolicy::float32(), "kept in float32"};
  const auto names = names_of(name);
  for (const DtypeOverride& row : options_.overrides | std::views::reverse) {
    if (matches_any(row.pattern, names)) return {row.policy, "override " + row.pattern + "=" + row.policy.name()};
  }
  return {options_.dtype, ""};
}

models::Role DtypeChoice::role_of(const files::TensorRecord& record) const {
  const bool is_tied = std::ranges::any_of(checkpoint_.manifest.ties, [&](const auto& tie) {
    return tie.first == record.name || tie.second == record.name;
  });
  return is_tied ? models::Role::kHead : models::role_of(checkpoint_.architecture, record.name, record.shape);
}

std::string DtypeChoice::operand_of(const std::string& name) const { return dtype_text(of(name).policy.operand()); }

std::vector<std::string> tensor_names(const files::Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const files::TensorRecord& record : checkpoint.manifest.tensors) names.push_back(record.name);
  for (const auto& [alias, owner] : checkpoint.manifest.ties) names.push_back(alias);
  for (const models::DerivedBuffer& buffer : checkpoint.manifest.buffers) names.push_back(buffer.name);
  return names;
}

void check_patterns(const files::Checkpoint& checkpoint, const LoadOptions& options,
                    const std::vector<std::string>& names) {
  const auto check = [&](const std::string& what, const std::string& pattern) {
    if (matches_any(pattern, names)) return;
    throw Error(ErrorCode::kInvalidArgument,
                what + " " + files::in_quotes(pattern) + " matches no tensor or module of " +
                    files::printable_path(checkpoint.directory) + "; '" +
                    OperationCall{Operation::kInspect, {}, {{Option::kTensors, ""}}} + "' lists their names");
  };
  for (const std::string& pattern : options.keep_float32) check("keep_float32", pattern);
  for (const DtypeOverride& row : options.overrides)
    check("the dtype override (" + row.policy.name() + ")", row.pattern);
}

}  // namespace halfbyte

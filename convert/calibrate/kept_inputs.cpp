#include "convert/calibrate/kept_inputs.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "loader/files/json_text.h"
#include "loader/files/printable.h"
#include "models/modules/linear.h"

namespace halfbyte::convert::calibrate {
namespace {

using nlohmann::json;

std::span<std::byte> bytes_of(const at::Tensor& values) {
  return {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()};
}

}  // namespace

std::uint64_t KeptInputs::give(const at::Tensor& rows) {
  const at::Tensor values = rows.contiguous();
  return meeting_.give({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
}

void KeptInputs::add(const models::Linear& linear, const at::Tensor& input, const at::Tensor& original) {
  if (!is_same_input(last_, input)) {
    const InputRows rows = rows_of(input, original, factors_);
    const std::uint64_t begin = give(rows.x);
    if (rows.change.defined()) give(rows.change);
    own_.inputs.push_back({begin, rows.x.size(0), rows.x.size(1), rows.change.defined()});
    last_ = input;
  }
  own_.givens.push_back({linear.path(), own_.inputs.size() - 1});
}

std::string KeptInputs::index() const {
  json inputs = json::array(), givens = json::array();
  for (const Input& each : own_.inputs) inputs.push_back({each.begin, each.tokens, each.columns, each.has_change});
  for (const Given& each : own_.givens) givens.push_back({each.path, each.input});
  return json{{"inputs", inputs}, {"givens", givens}}.dump();
}

std::vector<std::string> KeptInputs::meet(const std::string& text) {
  last_ = at::Tensor();
  const std::string index = this->index();
  const std::uint64_t begin = meeting_.give(std::as_bytes(std::span(index)));
  std::vector<std::string> out;
  for (const std::string& said : meeting_.meet(json{{"index", begin}, {"text", text}}.dump())) {
    const auto theirs = files::parse_json<json>(said, "what a part said", {});
    kept_.push_back(read_index(static_cast<int>(kept_.size()), theirs.at("index")));
    out.push_back(theirs.at("text"));
  }
  return out;
}

// Whether the file has as many bytes of it as it says.
bool KeptInputs::is_there(int part, const Input& input) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (input.tokens < 0 || input.tokens > kMost || input.columns < 1 || input.columns > kMost) return false;
  const std::uint64_t size = static_cast<std::uint64_t>(input.tokens * input.columns) * at::elementSize(factors_);
  if (size == 0) return true;
  return meeting_.size_of(part, input.begin) == size &&
         (!input.has_change || meeting_.size_of(part, input.begin + size) == size);
}

KeptInputs::Kept KeptInputs::read_index(int part, std::uint64_t begin) const {
  const std::string name = files::printable_path(meeting_.path_of(part));
  std::string text(meeting_.size_of(part, begin), '\0');
  meeting_.read(part, begin, std::as_writable_bytes(std::span(text)));
  Kept out;
  try {
    const auto index = files::parse_json<json>(text, name, {.max_bytes = text.size()});
    for (const json& each : index.at("inputs")) out.inputs.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
    for (const json& each : index.at("givens")) out.givens.push_back({each.at(0), each.at(1)});
  } catch (const json::exception& error) {
    throw Error(ErrorCode::kCorrupt, name + ": " + error.what());
  }
  const bool is_whole =
      std::ranges::all_of(out.inputs, [&](const Input& each) { return is_there(part, each); }) &&
      std::ranges::all_of(out.givens, [&](const Given& each) { return each.input < out.inputs.size(); });
  if (!is_whole) throw Error(ErrorCode::kCorrupt, name + ": has not the inputs that it says");
  return out;
}

InputRows KeptInputs::read(int part, const Input& input) const {
  InputRows out{at::empty({input.tokens, input.columns}, factors_), {}};
  meeting_.read(part, input.begin, bytes_of(out.x));
  if (!input.has_change) return out;
  out.change = at::empty({input.tokens, input.columns}, factors_);
  meeting_.read(part, input.begin + out.x.nbytes(), bytes_of(out.change));
  return out;
}

void KeptInputs::for_each(const std::function<void(const std::string& path, const KeptInput& input)>& work) const {
  for (std::size_t part = 0; part < kept_.size(); ++part) {
    for (const Given& given : kept_[part].givens) {
      const Input& input = kept_[part].inputs[given.input];
      const auto number = static_cast<std::int64_t>(part) << 32 | static_cast<std::int64_t>(given.input);
      const auto load = [&] { return read(static_cast<int>(part), input); };
      work(given.path, {number, input.tokens, input.columns, input.has_change, load});
    }
  }
}

void share_sums(Moments& moments, Meeting& meeting) {
  moments.give([&](std::span<const std::byte> bytes) { meeting.give(bytes); });
  meeting.meet();
  for (int part = 0; part < meeting.count(); ++part) {
    if (part == meeting.index()) continue;
    std::uint64_t at = 0;
    moments.take(part, [&](std::span<std::byte> out) {
      meeting.read(part, at, out);
      at += out.size();
    });
  }
}

}  // namespace halfbyte::convert::calibrate

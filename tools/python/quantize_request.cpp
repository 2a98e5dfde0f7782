#include "tools/python/quantize_request.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <halfbyte/dtype.h>
#include <halfbyte/error.h>

#include "tools/cli/parse.h"
#include "tools/cli/spelling.h"
#include "tools/python/values.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using cli::CalibrationWords;
using convert::QuantizeOptions;

// One argument: its name, for errors, and its value.
struct Argument {
  std::string_view name;
  py::handle value;

  template <class Value>
  Value as() const {
    return value.cast<Value>();
  }
  std::int64_t whole(std::int64_t first, std::int64_t last) const {
    const auto number = as<std::int64_t>();
    checked(name, std::to_string(number), cli::whole_number(first, last));
    return number;
  }
  std::string one_of(std::vector<std::string> names) const {
    return checked(name, as<std::string>(), cli::one_of(std::move(names)));
  }
};

template <auto kField>
void set(QuantizeRequest& request, const Argument& given) {
  auto& field = request.options.*kField;
  field = given.as<std::remove_reference_t<decltype(field)>>();
}

// 512 << 20, or "512MiB".
template <auto kField>
void set_bytes(QuantizeRequest& request, const Argument& given) {
  request.options.*kField = py::isinstance<py::str>(given.value)
                                ? cli::parse_bytes(checked(given.name, given.as<std::string>(), cli::byte_size()))
                                : given.as<std::uint64_t>();
}

void set_memory_limit(QuantizeRequest& request, const Argument& given) {
  set_bytes<&QuantizeOptions::memory_limit>(request, given);
  request.calibration.memory_limit = request.options.memory_limit;
}

void set_threads(QuantizeRequest& request, const Argument& given) {
  request.options.threads = static_cast<int>(given.whole(0, 4096));
}

void set_group_size(QuantizeRequest& request, const Argument& given) {
  if (!py::isinstance<py::str>(given.value)) return set<&QuantizeOptions::group_size>(request, given);
  given.one_of({"channel"});
  request.options.group_size = kPerChannel;
}

void set_search(QuantizeRequest& request, const Argument& given) {
  std::vector<std::string> names;
  for (const quant::SearchName& row : quant::searches()) names.emplace_back(row.name);
  request.options.search = std::ranges::find(quant::searches(), given.one_of(names), &quant::SearchName::name)->search;
}

void set_scheme_for(QuantizeRequest& request, const Argument& given) {
  for (const auto& [pattern, scheme] : given.as<py::dict>())
    request.options.scheme_for.emplace_back(pattern.cast<std::string>(), scheme.cast<std::string>());
}

void set_assume_original(QuantizeRequest& request, const Argument& given) {
  request.options.assume_original = dtype_from_name(given.one_of({"float32", "float16", "bfloat16"}));
}

void set_target_bpw(QuantizeRequest& request, const Argument& given) {
  request.options.target_bpw = given.as<double>();
  checked(given.name, py::str(given.value), cli::number_between(0.5, 64));
}

void set_part(QuantizeRequest& request, const Argument& given) {
  const auto text = given.as<std::string>();
  checked(given.name, text, cli::part_of_all());
  const auto [index, count] = cli::parse_part(text);
  request.options.part = convert::WorkPart{index, count};
}

void set_calibrate(QuantizeRequest& request, const Argument& given) {
  request.calibration.text = given.as<std::filesystem::path>().string();
}

void set_method(QuantizeRequest& request, const Argument& given) {
  request.calibration.method = given.one_of(
      std::vector<std::string>(std::begin(convert::kCalibrationMethods), std::end(convert::kCalibrationMethods)));
}

template <auto kField, cli::WholeRange kRange>
void set_calibration(QuantizeRequest& request, const Argument& given) {
  request.calibration.*kField = given.whole(kRange.first, kRange.last);
}

struct OptionRow {
  std::string_view name;
  void (*set)(QuantizeRequest& request, const Argument& given);
  bool needs_text = false;  // to be calibrated by
};
constexpr OptionRow kOptions[] = {
    {"scheme", set<&QuantizeOptions::scheme>},
    {"group_size", set_group_size},
    {"search", set_search},
    {"nested_scales", set<&QuantizeOptions::nested_scales>},
    {"target_bpw", set_target_bpw},
    {"target_size", set_bytes<&QuantizeOptions::target_size>},
    {"calibrate", set_calibrate},
    {"calibration_tokens", set_calibration<&CalibrationWords::tokens, cli::kCalibrationTokens>, true},
    {"calibration_ctx", set_calibration<&CalibrationWords::context, cli::kCalibrationContext>, true},
    {"method", set_method},
    {"keep", set<&QuantizeOptions::keep>},
    {"scheme_for", set_scheme_for},
    {"embedding", set<&QuantizeOptions::embedding>},
    {"head", set<&QuantizeOptions::head>},
    {"assume_original", set_assume_original},
    {"halfbyte_only", set<&QuantizeOptions::halfbyte_only>},
    {"keep_packed", set<&QuantizeOptions::keep_packed>},
    {"threads", set_threads},
    {"memory_limit", set_memory_limit},
    {"shard_size", set_bytes<&QuantizeOptions::shard_size>},
    {"requantize", set<&QuantizeOptions::requantize>},
    {"overwrite", set<&QuantizeOptions::overwrite>},
    {"part", set_part},
    {"finish", set<&QuantizeOptions::finish>},
    {"resume", set<&QuantizeOptions::resume>},
    {"restart", set<&QuantizeOptions::restart>}};

const OptionRow& row_of(const std::string& name) {
  const auto* const row = std::ranges::find(kOptions, name, &OptionRow::name);
  if (row == std::end(kOptions)) throw py::type_error("quantize() got an unexpected keyword argument '" + name + "'");
  return *row;
}

void apply(const OptionRow& row, QuantizeRequest& request, py::handle value) {
  try {
    row.set(request, {row.name, value});
  } catch (const py::cast_error&) {
    throw py::type_error("quantize(): '" + std::string(row.name) + "' cannot be a " +
                         py::type::of(value).attr("__name__").cast<std::string>());
  }
}

}  // namespace

QuantizeRequest request_of(const py::kwargs& given) {
  QuantizeRequest out;
  // As the command line's are: its bytes come of the same options, and so does its record, which has them as flags.
  out.options.keep_codes = true;
  out.options.spelling = cli::command_line();
  std::string needy;
  for (const auto& [key, value] : given) {
    const OptionRow& row = row_of(key.cast<std::string>());
    if (value.is_none()) continue;
    apply(row, out, value);
    if (row.needs_text) needy = row.name;
  }
  if (!needy.empty() && !out.is_calibrated()) throw Error(ErrorCode::kInvalidArgument, needy + " needs calibrate");
  return out;
}

}  // namespace halfbyte::python

#include <halfbyte/option.h>

#include <algorithm>
#include <array>

namespace halfbyte {
namespace {

struct OptionRow {
  Option option;
  std::string_view name;
  std::string_view in_cpp = {};  // of what the program alone has: what there is instead
};

constexpr auto kOptionRows = std::to_array<OptionRow>({
    {.option = Option::kAgainst, .name = "against", .in_cpp = "the option against"},
    {.option = Option::kAssumeOriginal, .name = "assume_original"},
    {.option = Option::kChatTemplate, .name = "chat_template"},
    {.option = Option::kDequantize, .name = "dequantize"},
    {.option = Option::kDryRun, .name = "dry_run", .in_cpp = "the plan"},
    {.option = Option::kDtype, .name = "dtype"},
    {.option = Option::kEmbedding, .name = "embedding"},
    {.option = Option::kFinish, .name = "finish"},
    {.option = Option::kFormat, .name = "format"},
    {.option = Option::kHalfbyteOnly, .name = "halfbyte_only"},
    {.option = Option::kHead, .name = "head"},
    {.option = Option::kInsecure, .name = "insecure"},
    {.option = Option::kInterface, .name = "interface"},
    {.option = Option::kKeep, .name = "keep"},
    {.option = Option::kKeepPacked, .name = "keep_packed"},
    {.option = Option::kKeys, .name = "keys"},
    {.option = Option::kMemoryLimit, .name = "memory_limit"},
    {.option = Option::kNestedScales, .name = "nested_scales"},
    {.option = Option::kOverrides, .name = "overrides"},
    {.option = Option::kOverwrite, .name = "overwrite"},
    {.option = Option::kPart, .name = "part"},
    {.option = Option::kRequantize, .name = "requantize"},
    {.option = Option::kRestart, .name = "restart"},
    {.option = Option::kResume, .name = "resume"},
    {.option = Option::kScheme, .name = "scheme"},
    {.option = Option::kSchemeFor, .name = "scheme_for"},
    {.option = Option::kTargetBpw, .name = "target_bpw"},
    {.option = Option::kTargetSize, .name = "target_size"},
    {.option = Option::kTensors, .name = "tensors"},
    {.option = Option::kType, .name = "type"},
    {.option = Option::kVerbose, .name = "verbose", .in_cpp = "the option verbose"},
});

struct OperationRow {
  Operation operation;
  std::string_view name;
  std::string_view function = {};  // empty: only the program does it
};

constexpr auto kOperationRows = std::to_array<OperationRow>({
    {.operation = Operation::kDiff, .name = "diff"},
    {.operation = Operation::kDoctor, .name = "doctor"},
    {.operation = Operation::kExport, .name = "export", .function = "export_checkpoint"},
    {.operation = Operation::kInspect, .name = "inspect"},
    {.operation = Operation::kQuantize, .name = "quantize", .function = "quantize"},
    {.operation = Operation::kVerify, .name = "verify"},
});

const OptionRow& row_of(Option option) { return *std::ranges::find(kOptionRows, option, &OptionRow::option); }
const OperationRow& row_of(Operation operation) {
  return *std::ranges::find(kOperationRows, operation, &OperationRow::operation);
}

template <auto& kRows, auto kMember>
constexpr auto column() {
  std::array<std::remove_cvref_t<decltype(kRows.front().*kMember)>, kRows.size()> out{};
  std::ranges::transform(kRows, out.begin(), kMember);
  return out;
}

std::string option_in_cpp(Option option) {
  const OptionRow& row = row_of(option);
  return std::string(row.in_cpp.empty() ? row.name : row.in_cpp);
}

// "quantize(llama, Q, {.scheme = "nf4"})".
std::string call_in_cpp(const OperationCall& call) {
  const OperationRow& row = row_of(call.operation);
  if (row.function.empty()) return "halfbyte " + std::string(row.name);
  std::string out;
  for (const std::string& argument : call.arguments) out += (out.empty() ? "" : ", ") + argument;
  std::string fields;
  for (const auto& [option, value] : call.options)
    fields += (fields.empty() ? "." : ", .") + std::string(name(option)) + " = " +
              (value.empty() ? "true" : '"' + value + '"');
  if (!fields.empty()) out += (out.empty() ? "{" : ", {") + fields + "}";
  return std::string(row.function) + "(" + out + ")";
}

constexpr Spelling kCppSpelling{.option = option_in_cpp, .call = call_in_cpp};

}  // namespace

std::span<const Option> options() noexcept {
  static constexpr auto kOptions = column<kOptionRows, &OptionRow::option>();
  return kOptions;
}

std::span<const Operation> operations() noexcept {
  static constexpr auto kOperations = column<kOperationRows, &OperationRow::operation>();
  return kOperations;
}

std::string_view name(Option option) noexcept { return row_of(option).name; }
std::string_view name(Operation operation) noexcept { return row_of(operation).name; }

const Spelling& cpp_spelling() noexcept { return kCppSpelling; }

}  // namespace halfbyte

// What messages call options and operations by: what they are, not how one kind of program spells them. The command
// line says `--memory-limit`, a C++ program sets `memory_limit`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halfbyte {

// An option that some message names: most are fields of the options that a library's function takes, under those names.
enum class Option {
  kAgainst,
  kAssumeOriginal,
  kChatTemplate,
  kDequantize,
  kDryRun,
  kDtype,
  kEmbedding,
  kFinish,
  kFormat,
  kHalfbyteOnly,
  kHead,
  kInsecure,
  kInterface,
  kKeep,
  kKeepPacked,
  kKeys,
  kMemoryLimit,
  kNestedScales,
  kOverrides,
  kOverwrite,
  kPart,
  kRequantize,
  kRestart,
  kResume,
  kScheme,
  kSchemeFor,
  kTargetBpw,
  kTargetSize,
  kTensors,
  kType,
  kVerbose,
};

std::span<const Option> options() noexcept;     // all of them
std::string_view name(Option option) noexcept;  // "memory_limit"

// What halfbyte does for people, as far as some message sends them there.
enum class Operation { kDiff, kDoctor, kExport, kInspect, kQuantize, kVerify };

std::span<const Operation> operations() noexcept;
std::string_view name(Operation operation) noexcept;  // "quantize"

// One use of an operation: what it is given, and options with their values (empty: it is turned on).
struct OperationCall {
  Operation operation;
  std::vector<std::string> arguments = {};
  std::vector<std::pair<Option, std::string>> options = {};
};

// How one kind of program writes them.
struct Spelling {
  std::string (*option)(Option option);
  std::string (*call)(const OperationCall& call);
};

// As a C++ program has them: options by the names of their fields; what the libraries have no function for is done with
// the program.
const Spelling& cpp_spelling() noexcept;

}  // namespace halfbyte

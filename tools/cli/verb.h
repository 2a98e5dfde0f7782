// The verbs of halfbyte: one table of what they are called, and how a program runs the ones it has.
//
// `halfbyte` needs no LibTorch and runs the kCore verbs itself. For a kModel verb it becomes the second program,
// `halfbyte-model`, which links LibTorch and has those rows. Both call run_program() with their rows.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "tools/cli/exit_status.h"

namespace halfbyte::cli {

class OptionParser;

enum class Home { kCore, kModel };

struct VerbInfo {
  std::string_view name;
  std::string_view summary;   // one line of `halfbyte --help`
  std::string_view examples;  // the end of `halfbyte VERB --help`
  Home home;
  // Its products are large and it takes long: threads that wait for others sleep, instead of taking their cores.
  bool waits_asleep = false;
};

std::span<const VerbInfo> verbs() noexcept;

std::string_view version() noexcept;  // "0.1.0"
// Where halfbyte-model lies beside this program; it need not exist.
std::filesystem::path model_program();
bool runs_models();  // whether it does

// Options that every verb has.
struct CommonOptions {
  bool is_json = false;
  bool is_quiet = false;  // warnings and progress are off
  int verbosity = 0;
  // Of `halfbyte`: becomes halfbyte-model with the same words, for a verb of which only some uses run a model.
  std::function<ExitStatus()> run_with_model = {};
};

using Action = std::function<ExitStatus()>;

// A program's implementation of one row of verbs(). `prepare` declares the verb's options on `parser` and returns what
// to do once they are parsed; both arguments outlive the action.
struct VerbRow {
  std::string_view name;
  Action (*prepare)(OptionParser& parser, const CommonOptions& common);
};

// Everything between main() and a verb: parsing, help, version, errors, exit status.
int run_program(std::span<const VerbRow> rows, int argc, char** argv) noexcept;

}  // namespace halfbyte::cli

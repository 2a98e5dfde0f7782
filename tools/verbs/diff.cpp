// halfbyte diff A B
#include <memory>
#include <string>

#include "loader/files/parallel.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/verbs/checkpoint_diff.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

struct Words {
  std::string a;
  std::string b;
  bool tensors = false;
  bool exit_code = false;
};

void declare(OptionParser& parser, Words& words) {
  parser.add_checkpoint("A", words.a, "model to read; errors are relative to its values").required();
  parser.add_checkpoint("B", words.b, "model to compare with it; both may be quantised").required();
  parser.add_flag("--tensors", words.tensors, "list every tensor, equal ones too");
  parser.add_flag("--exit-code", words.exit_code, "end with status 1, and no line on stderr, when the two differ");
}

CheckpointDiff diff_with_progress(const files::Checkpoint& a, const files::Checkpoint& b, const CommonOptions& common) {
  const InterruptWatch interrupt;  // before OpenMP's threads
  Progress progress("diff", !common.is_quiet);
  const files::SharedProgress::Listener listener = [&](std::uint64_t done, std::uint64_t total) {
    if (interrupt.token().stop_requested()) throw Error(ErrorCode::kInterrupted, "diff was stopped");
    progress.update(done, total);
  };
  files::SharedProgress shared(listener, b.size_bytes);
  return diff(a, b, [&](std::uint64_t bytes) { shared.add(bytes); });
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  const files::Checkpoint a = files::open_checkpoint(words.a);
  const files::Checkpoint b = files::open_checkpoint(words.b);
  const CheckpointDiff found = diff_with_progress(a, b, common);
  (common.is_json ? print_diff_json : print_diff)(a, b, found, words.tensors);
  return words.exit_code && !found.is_same() ? ExitStatus::kFailed : ExitStatus::kDone;
}

}  // namespace

Action prepare_diff(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

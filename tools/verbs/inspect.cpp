// halfbyte inspect CKPT
#include <memory>
#include <string>

#include "loader/files/checkpoint.h"
#include "tools/cli/parse.h"
#include "tools/verbs/inspect_output.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

struct Words {
  std::string checkpoint;
  bool tensors = false;
};

ExitStatus run(const Words& words, const CommonOptions& common) {
  const files::Checkpoint checkpoint = files::open_checkpoint(words.checkpoint);
  const Inspection inspection = inspect(checkpoint);
  if (common.is_json) {
    print_inspection_json(checkpoint, inspection, words.tensors);
  } else {
    print_inspection(checkpoint, inspection, words.tensors);
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_inspect(CLI::App& app, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  app.add_option("CKPT", words->checkpoint, "model to read; only its headers are")->required();
  app.add_flag("--tensors", words->tensors, "list every tensor");
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

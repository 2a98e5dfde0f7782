// halfbyte synth DST
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/synth.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/verbs/synthesis.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

void declare(OptionParser& parser, SynthWords& words) {
  std::vector<std::string> shapes;
  for (const std::string_view shape : convert::synth_shapes()) shapes.emplace_back(shape);
  parser.add_option("DST", words.destination, "directory to write; it appears when it is complete").required();
  parser.add_option("--like", words.like, "whose shape").check(one_of(shapes)).show_default();
  parser
      .add_option("--config", words.config,
                  "whose shape instead: a config.json, or a directory with one, whose tokenizer is copied")
      .type_name("PATH");
  parser.add_option("--layers", words.layers, "the first so many layers (0: all)")
      .check(whole_number(0, INT64_MAX))
      .show_default();
  parser
      .add_option("--experts", words.experts,
                  "as their family's checkpoints usually are, a matrix each, or stacked in one tensor")
      .check(one_of(experts_names()))
      .show_default();
  parser.add_option("--dtype", words.dtype, "of every tensor; the config's, or bfloat16, if not said")
      .check(one_of({"bfloat16", "float16", "float32"}));
  parser.add_option("--seed", words.seed, "the same seed gives the same bytes on every machine")
      .check(whole_number(0, INT64_MAX))
      .show_default();
  parser.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
}

Outcome synthesised(const SynthWords& words, const CommonOptions& common) {
  ignore_broken_pipes();
  const InterruptWatch interrupt;
  Progress progress("synth", !common.is_quiet);
  return synthesise(words, {.stop = interrupt.token(), .progress = [&](std::uint64_t done, std::uint64_t total) {
                              progress.update(done, total);
                            }});
}

ExitStatus run(const SynthWords& words, const CommonOptions& common) {
  const Outcome outcome = synthesised(words, common);
  log_always(outcome.warnings);
  common.is_json ? print_json(*outcome.json) : print_line(outcome.line);
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_synth(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<SynthWords>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

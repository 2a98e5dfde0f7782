// halfbyte synth DST
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "convert/synth.h"
#include "tools/cli/format.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/parse.h"
#include "tools/cli/platform.h"
#include "tools/cli/progress.h"
#include "tools/cli/spelling.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

struct Words {
  std::string destination;
  std::string like = "llama-1.1b";
  std::int64_t layers = 0;
  std::string experts = "usual";
  std::string dtype = "bfloat16";
  std::uint64_t seed = 0;
  bool overwrite = false;
};

struct ExpertsWord {
  const char* word;
  convert::SynthExperts experts;
};
constexpr ExpertsWord kExpertsWords[] = {{"usual", convert::SynthExperts::kUsual},
                                         {"separate", convert::SynthExperts::kSeparate},
                                         {"stacked", convert::SynthExperts::kStacked}};

void declare(OptionParser& parser, Words& words) {
  std::vector<std::string> shapes;
  for (const std::string_view shape : convert::synth_shapes()) shapes.emplace_back(shape);
  parser.add_option("DST", words.destination, "directory to write; it appears when it is complete").required();
  parser.add_option("--like", words.like, "whose shape").check(one_of(shapes)).show_default();
  parser.add_option("--layers", words.layers, "the first so many layers (0: all)")
      .check(whole_number(0, INT64_MAX))
      .show_default();
  parser
      .add_option("--experts", words.experts,
                  "as their family's checkpoints usually are, a matrix each, or stacked in one tensor")
      .check(one_of({"usual", "separate", "stacked"}))
      .show_default();
  parser.add_option("--dtype", words.dtype, "of every tensor")
      .check(one_of({"bfloat16", "float16", "float32"}))
      .show_default();
  parser.add_option("--seed", words.seed, "the same seed gives the same bytes on every machine")
      .check(whole_number(0, INT64_MAX))
      .show_default();
  parser.add_flag("--overwrite", words.overwrite, "replace DST when it exists");
}

ExitStatus run(const Words& words, const CommonOptions& common) {
  ignore_broken_pipes();
  const InterruptWatch interrupt;
  const auto start = std::chrono::steady_clock::now();
  convert::SynthSummary summary;
  {
    Progress progress("synth", !common.is_quiet);
    convert::SynthOptions options;
    options.like = words.like;
    options.layers = words.layers;
    options.experts = std::ranges::find(kExpertsWords, words.experts, &ExpertsWord::word)->experts;
    options.dtype = *dtype_from_name(words.dtype);
    options.seed = words.seed;
    options.overwrite = words.overwrite;
    options.stop = interrupt.token();
    options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
    summary = convert::synth(words.destination, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_always(said(summary.warnings));
  if (common.is_json) {
    print_json({{"destination", words.destination},
                {"like", words.like},
                {"layers", words.layers},
                {"experts", words.experts},
                {"dtype", words.dtype},
                {"seed", words.seed},
                {"bytes", summary.size_bytes},
                {"seconds", seconds},
                {"warnings", said(summary.warnings)}});
  } else {
    print_line(human_bytes(summary.size_bytes) + " written in " + human_seconds(seconds) + " (random weights of " +
               words.like + "'s shape, " + words.dtype + ")");
  }
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_synth(OptionParser& parser, const CommonOptions& common) {
  const auto words = std::make_shared<Words>();
  declare(parser, *words);
  return [words, &common] { return run(*words, common); };
}

}  // namespace halfbyte::cli

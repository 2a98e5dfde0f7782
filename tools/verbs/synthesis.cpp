#include "tools/verbs/synthesis.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "convert/synth.h"
#include "tools/cli/format.h"

namespace halfbyte::cli {
namespace {

struct ExpertsWord {
  const char* word;
  convert::SynthExperts experts;
};
constexpr ExpertsWord kExpertsWords[] = {{"usual", convert::SynthExperts::kUsual},
                                         {"separate", convert::SynthExperts::kSeparate},
                                         {"stacked", convert::SynthExperts::kStacked}};

convert::SynthOptions options_of(const SynthWords& words, const Caller& caller) {
  convert::SynthOptions options;
  options.like = words.like;
  options.config = words.config;
  options.layers = words.layers;
  options.experts = std::ranges::find(kExpertsWords, words.experts, &ExpertsWord::word)->experts;
  if (!words.dtype.empty()) options.dtype = *dtype_from_name(words.dtype);
  options.seed = words.seed;
  options.overwrite = words.overwrite;
  options.stop = caller.stop;
  options.progress = caller.progress;
  return options;
}

}  // namespace

std::vector<std::string> experts_names() {
  std::vector<std::string> out;
  for (const ExpertsWord& row : kExpertsWords) out.emplace_back(row.word);
  return out;
}

Outcome synthesise(const SynthWords& words, const Caller& caller) {
  const auto start = std::chrono::steady_clock::now();
  const convert::SynthSummary summary = convert::synth(words.destination, options_of(words, caller));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<std::string> warnings = said(summary.warnings, *caller.spelling);
  const std::string dtype(name(summary.dtype)), &shape = words.config.empty() ? words.like : words.config;
  nlohmann::ordered_json json = {{"destination", words.destination}, {"like", shape},      {"layers", words.layers},
                                 {"experts", words.experts},         {"dtype", dtype},     {"seed", words.seed},
                                 {"bytes", summary.size_bytes},      {"seconds", seconds}, {"warnings", warnings}};
  return {.json = models::HeldOrderedJson(std::move(json)),
          .line = human_bytes(summary.size_bytes) + " written in " + human_seconds(seconds) + " (random weights of " +
                  shape + "'s shape, " + dtype + ")",
          .warnings = std::move(warnings)};
}

}  // namespace halfbyte::cli

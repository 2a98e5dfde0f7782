// The verbs of this program, one file each.
#pragma once

#include "tools/cli/verb.h"

namespace halfbyte::cli {

Action prepare_quantize(CLI::App& app, const CommonOptions& common);
Action prepare_inspect(CLI::App& app, const CommonOptions& common);
Action prepare_verify(CLI::App& app, const CommonOptions& common);
Action prepare_dequantize(CLI::App& app, const CommonOptions& common);
Action prepare_diff(CLI::App& app, const CommonOptions& common);
Action prepare_export(CLI::App& app, const CommonOptions& common);
Action prepare_doctor(CLI::App& app, const CommonOptions& common);
Action prepare_synth(CLI::App& app, const CommonOptions& common);
Action prepare_tokenize(CLI::App& app, const CommonOptions& common);

}  // namespace halfbyte::cli

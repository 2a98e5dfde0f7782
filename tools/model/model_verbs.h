// One function a verb: declares its options and returns what to do. For main.cpp's table.
#pragma once

#include "tools/cli/verb.h"

namespace halfbyte::cli {

Action prepare_generate(CLI::App& app, const CommonOptions& common);
Action prepare_chat(CLI::App& app, const CommonOptions& common);
Action prepare_perplexity(CLI::App& app, const CommonOptions& common);
Action prepare_doctor(CLI::App& app, const CommonOptions& common);
Action prepare_bench(CLI::App& app, const CommonOptions& common);

}  // namespace halfbyte::cli

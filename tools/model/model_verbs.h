// One function a verb: declares its options and returns what to do. For main.cpp's table.
#pragma once

#include "tools/cli/verb.h"

namespace halfbyte::cli {

Action prepare_quantize(OptionParser& parser, const CommonOptions& common);
Action prepare_generate(OptionParser& parser, const CommonOptions& common);
Action prepare_chat(OptionParser& parser, const CommonOptions& common);
Action prepare_serve(OptionParser& parser, const CommonOptions& common);
Action prepare_perplexity(OptionParser& parser, const CommonOptions& common);
Action prepare_evaluate(OptionParser& parser, const CommonOptions& common);
Action prepare_doctor(OptionParser& parser, const CommonOptions& common);
Action prepare_finetune(OptionParser& parser, const CommonOptions& common);
Action prepare_bench(OptionParser& parser, const CommonOptions& common);

}  // namespace halfbyte::cli

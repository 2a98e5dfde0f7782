// The verbs of this program, one file each.
#pragma once

#include "tools/cli/verb.h"

namespace halfbyte::cli {

Action prepare_quantize(OptionParser& parser, const CommonOptions& common);
Action prepare_inspect(OptionParser& parser, const CommonOptions& common);
Action prepare_verify(OptionParser& parser, const CommonOptions& common);
Action prepare_dequantize(OptionParser& parser, const CommonOptions& common);
Action prepare_merge(OptionParser& parser, const CommonOptions& common);
Action prepare_diff(OptionParser& parser, const CommonOptions& common);
Action prepare_generate(OptionParser& parser, const CommonOptions& common);
Action prepare_export(OptionParser& parser, const CommonOptions& common);
Action prepare_doctor(OptionParser& parser, const CommonOptions& common);
Action prepare_launch(OptionParser& parser, const CommonOptions& common);
Action prepare_synth(OptionParser& parser, const CommonOptions& common);
Action prepare_tokenize(OptionParser& parser, const CommonOptions& common);
Action prepare_completion(OptionParser& parser, const CommonOptions& common);
Action prepare_man(OptionParser& parser, const CommonOptions& common);

}  // namespace halfbyte::cli

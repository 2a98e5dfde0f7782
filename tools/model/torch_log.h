// LibTorch's own log, which writes to stderr.
#pragma once

namespace halfbyte::cli {

// From now on only what ends the process: what we report ourselves, in a line, c10d tells in twenty.
// TORCH_CPP_LOG_LEVEL has the last word.
void silence_torch();

}  // namespace halfbyte::cli

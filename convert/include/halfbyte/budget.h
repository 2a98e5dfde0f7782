// What a model loses by each way to store each tensor, for quantize() with a target of bits or bytes. Needs LibTorch.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <halfbyte/calibrate.h>

namespace halfbyte::convert {

struct SensitivityOptions {
  // How codes will be chosen, as CalibrateOptions::method; empty: by the weights alone.
  std::string method;
  // By how many tokens, from the first on, codes will be chosen, in whole sequences. Losses are measured on some of
  // those beyond, or where there are none on the last eighth of them.
  std::int64_t chosen_by = 0;
  // What the tokens are, for people: "the calibration text".
  std::string tokens_name = "the calibration text";
  // Called now and then with how many tokens' worth of measuring is done, and of all; from one thread.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

// For QuantizeOptions::sensitivity. Measures on 32 sequences at most. `tokens` is called when they are needed. Errors:
// kInvalidArgument for an unknown method, or no tokens.
std::shared_ptr<Sensitivity> make_sensitivity(std::function<CalibrationTokens()> tokens, SensitivityOptions options);

struct OwnTokensOptions {
  std::int64_t sequences = 16;
  std::int64_t context = kDefaultCalibrationContext;  // fewer where the model takes fewer
  int threads = 0;                                    // 0: one a core
  std::stop_token stop = {};                          // a stop throws kInterrupted
};

// Sequences that the model at `checkpoint` makes itself, drawn from its own predictions. The whole model is loaded.
// Errors: as load_low_bit().
CalibrationTokens own_tokens(const std::filesystem::path& checkpoint, const OwnTokensOptions& options = {});

}  // namespace halfbyte::convert

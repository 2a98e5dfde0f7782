// Codes chosen by what a model's layers are given while it reads a text: smaller loss at the same size. Needs LibTorch;
// quantize() takes what this makes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <halfbyte/convert.h>

namespace halfbyte::convert {

inline constexpr std::int64_t kDefaultCalibrationTokens = 32768;
inline constexpr std::int64_t kDefaultCalibrationContext = 256;
// By name: scales searched with errors weighted by the inputs' second moments; codes chosen one after another, each
// error made up for by the later ones; the same with each product making up for what those before it have lost; and the
// one of these that loses least, which is the last.
inline constexpr const char* kCalibrationMethods[] = {"search", "gptq", "gptaq", "auto"};
inline constexpr const char* kDefaultCalibrationMethod = "auto";

// Sequences of tokens, as the model reads them: each with what its tokenizer puts before a text.
struct CalibrationTokens {
  std::vector<std::vector<std::int64_t>> sequences;  // none is empty
  std::string hash;                                  // xxh3_128 of what they were read from
  std::vector<Text> notes = {};
};

struct CalibrationTextOptions {
  std::int64_t tokens = kDefaultCalibrationTokens;    // at most
  std::int64_t context = kDefaultCalibrationContext;  // of a sequence; fewer where the model takes fewer
};

// Reads a text for the model at `checkpoint`: plain, or token ids, conversations and texts as JSON in a file called
// .jsonl (one a line) or .json (one list). Errors: kNotFound, kIo; kInvalidArgument when it is too short; kCorrupt
// naming a line that is none of these.
CalibrationTokens read_calibration_text(const std::filesystem::path& text, const std::filesystem::path& checkpoint,
                                        const CalibrationTextOptions& options = {});

// The same of the text that ships with halfbyte: prose, several languages, code.
CalibrationTokens read_builtin_calibration(const std::filesystem::path& checkpoint,
                                           const CalibrationTextOptions& options = {});

struct CalibrateOptions {
  std::string method = kDefaultCalibrationMethod;
  // Of the process while it calibrates; nothing: as much as it needs. Units: bytes.
  std::optional<std::uint64_t> memory_limit = {};
  // Called now and then with how many tokens' worth of calibration is done, and of all; from one thread.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

// For QuantizeOptions::calibrator. The bytes then depend on the machine's kernels, the threads and LibTorch's version
// too; all three are in the result's record. Errors: kInvalidArgument for an unknown method, or no tokens.
std::shared_ptr<Calibrator> make_calibrator(CalibrationTokens tokens, const CalibrateOptions& options = {});

}  // namespace halfbyte::convert

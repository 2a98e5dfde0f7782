// Calibration texts to sequences of tokens.
#include <algorithm>
#include <limits>
#include <memory>

#include <halfbyte/calibrate.h>

#include "convert/calibrate/builtin_text.h"
#include "convert/calibrate/json_texts.h"
#include "convert/calibrate/tokenizer_of.h"
#include "loader/files/checkpoint.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace calibrate {

std::unique_ptr<models::Tokenizer> tokenizer_of(const std::filesystem::path& checkpoint) {
  auto out = models::load_tokenizer(files::TokenizerDirectory(checkpoint).path());
  if (out) return out;
  throw Error(ErrorCode::kInvalidArgument,
              files::printable_path(checkpoint) +
                  ": there is no tokenizer, so no text can be read for calibration; give token ids (a .jsonl file)");
}

}  // namespace calibrate

namespace {

namespace fs = std::filesystem;
using calibrate::Windows;

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;
// Of a long text as much is read as gives the tokens that are wanted: no tokenizer's are longer on average.
constexpr std::uint64_t kBytesAToken = 16;

std::string read_file(const fs::path& path) {
  const files::InputFile file(path);
  if (file.size_bytes() > kMaxTextBytes)
    throw Error(ErrorCode::kInvalidArgument, files::printable_path(path) + ": a calibration text of more than 1 GiB");
  std::string out(file.size_bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

// What a text spells is text.
Windows read_plain(std::string_view text, const fs::path& checkpoint, calibrate::WindowOptions options) {
  const auto tokenizer = calibrate::tokenizer_of(checkpoint);
  options.prefix = tokenizer->prefix();
  for (std::uint64_t bytes = static_cast<std::uint64_t>(options.tokens) * kBytesAToken;; bytes *= 2) {
    const std::string_view part = text.substr(0, bytes < text.size() ? text.rfind('\n', bytes) : text.size());
    Windows out(options);
    out.add(tokenizer->encode(part, models::SpecialTokens::kAsText));
    if (out.is_full() || bytes >= text.size()) return out;
  }
}

struct Limits {
  std::int64_t context, vocab_size;
};
Limits limits_of(const fs::path& checkpoint, std::int64_t context) {
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  if (!opened.architecture) return {context, std::numeric_limits<std::int64_t>::max()};
  const models::ModelConfig config = opened.model_config();
  return {std::min(context, config.max_position_embeddings), config.vocab_size};
}

CalibrationTokens cut(const Windows& windows, const std::string& name, std::string_view text, std::int64_t context) {
  CalibrationTokens out{windows.cut(), files::hash_hex(text)};
  if (!out.sequences.empty()) return out;
  throw Error(ErrorCode::kInvalidArgument, name + ": " + std::to_string(windows.size()) +
                                               " tokens; calibration takes at least one run of " +
                                               std::to_string(context));
}

}  // namespace

CalibrationTokens read_calibration_text(const fs::path& path, const fs::path& checkpoint,
                                        const CalibrationTextOptions& options) {
  const std::string text = read_file(path);
  const auto [context, vocab_size] = limits_of(checkpoint, std::min(options.context, options.tokens));
  const calibrate::WindowOptions windows{options.tokens, context};
  return cut(calibrate::is_json(path) ? calibrate::read_json_texts(text, path, {checkpoint, vocab_size, windows})
                                      : read_plain(text, checkpoint, windows),
             files::printable_path(path), text, context);
}

CalibrationTokens read_builtin_calibration(const fs::path& checkpoint, const CalibrationTextOptions& options) {
  const std::string_view text = calibrate::builtin_text();
  const std::int64_t context = limits_of(checkpoint, std::min(options.context, options.tokens)).context;
  return cut(read_plain(text, checkpoint, {options.tokens, context}), "the built-in text", text, context);
}

}  // namespace halfbyte::convert

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
                  ": there is no tokenizer, so no text can be read; give token ids (a .jsonl file)");
}

}  // namespace calibrate

namespace {

namespace fs = std::filesystem;
using calibrate::Windows;

// Of a long text as much is read as gives the tokens that are wanted: no tokenizer's are longer on average.
constexpr std::uint64_t kBytesAToken = 16;

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
  const std::string text = calibrate::read_text_file(path);
  const auto [context, vocab_size] = limits_of(checkpoint, std::min(options.context, options.tokens));
  const calibrate::WindowOptions windows{options.tokens, context};
  return cut(calibrate::shape_of(path) == calibrate::TextShape::kPlain
                 ? read_plain(text, checkpoint, windows)
                 : calibrate::read_json_texts(text, path, {checkpoint, vocab_size, windows}),
             files::printable_path(path), text, context);
}

CalibrationTokens read_builtin_calibration(const fs::path& checkpoint, const CalibrationTextOptions& options) {
  const std::string_view text = calibrate::builtin_text();
  const std::int64_t context = limits_of(checkpoint, std::min(options.context, options.tokens)).context;
  return cut(read_plain(text, checkpoint, {options.tokens, context}), "the built-in text", text, context);
}

}  // namespace halfbyte::convert

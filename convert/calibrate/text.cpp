// Calibration texts to sequences of tokens.
#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include <halfbyte/calibrate.h>

#include "loader/files/checkpoint.h"
#include "loader/files/hash.h"
#include "loader/files/printable.h"
#include "loader/files/tokenizer_directory.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;

std::string read_text(const fs::path& path) {
  const files::InputFile file(path);
  if (file.size_bytes() > kMaxTextBytes)
    throw Error(ErrorCode::kInvalidArgument, files::printable_path(path) + ": a calibration text of more than 1 GiB");
  std::string out(file.size_bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

std::unique_ptr<models::Tokenizer> tokenizer_at(const fs::path& checkpoint) {
  auto out = models::load_tokenizer(files::TokenizerDirectory(checkpoint).path());
  if (out) return out;
  throw Error(ErrorCode::kInvalidArgument,
              files::printable_path(checkpoint) + ": there is no tokenizer, so no text can be read for calibration");
}

// As many tokens as a sequence of this model may have.
std::int64_t context_of(const fs::path& checkpoint, std::int64_t wanted) {
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  return opened.architecture ? std::min(wanted, opened.model_config().max_position_embeddings) : wanted;
}

// Beginning-of-text and a run of the text's tokens, as many times as there are whole ones.
std::vector<models::TokenIds> windows_of(const models::TokenIds& ids, const models::TokenIds& prefix,
                                         std::int64_t context, std::int64_t tokens) {
  const std::int64_t run = context - std::ssize(prefix);
  const std::int64_t count = std::min(tokens / context, run > 0 ? std::ssize(ids) / run : 0);
  std::vector<models::TokenIds> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(prefix);
    out.back().insert(out.back().end(), ids.begin() + i * run, ids.begin() + (i + 1) * run);
  }
  return out;
}

}  // namespace

CalibrationTokens read_calibration_text(const fs::path& path, const fs::path& checkpoint,
                                        const CalibrationTextOptions& options) {
  const std::string text = read_text(path);
  const auto tokenizer = tokenizer_at(checkpoint);
  const std::int64_t context = context_of(checkpoint, options.context);
  // What a text spells is text.
  const models::TokenIds ids = tokenizer->encode(text, models::SpecialTokens::kAsText);
  CalibrationTokens out{windows_of(ids, tokenizer->prefix(), context, options.tokens), files::hash_hex(text)};
  if (!out.sequences.empty()) return out;
  throw Error(ErrorCode::kInvalidArgument, files::printable_path(path) + ": " + std::to_string(ids.size()) +
                                               " tokens; calibration takes at least one run of " +
                                               std::to_string(context));
}

}  // namespace halfbyte::convert

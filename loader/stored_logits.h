// A model's log-probabilities on disk, 16 bits each, for comparing two models that do not fit in memory together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "loader/files/platform.h"
#include "models/evaluation/logits.h"
#include "models/evaluation/windows.h"

namespace halfbyte {

// The file: what it was made of and the tokens of all its windows (so that it is never taken for another text's), then
// a row for each scored token. A row has the largest log-probability, the step of its codes, the five most likely
// tokens, and a code of 16 bits a token of the vocabulary: steps below the largest. Below e^-32 of the largest, all are
// that. A step is 32 / 65535 at most, so a log-probability is off by 0.00025 at most; a divergence of .0005 changes by
// less than a thousandth of itself, since a row's errors cancel when it is normalised again.
struct LogitsHeader {
  std::string made_of;  // the model: for messages
  std::int64_t vocab_size = 0, windows = 0, context = 0, scored = 0;

  std::uint64_t row_bytes() const noexcept;
  std::uint64_t rows_begin() const noexcept;  // in the file
  std::uint64_t file_bytes() const noexcept;
};

// Passes a source's logits on while they are written.
class RecordedLogits final : public models::LogitSource {
 public:
  // Errors: kAlreadyExists, kIo, kNoResources.
  RecordedLogits(models::LogitSource& source, const std::filesystem::path& path, const models::Windows& windows,
                 std::int64_t vocab_size, const std::string& made_of);
  void begin(const models::WindowBatch& batch) override;
  at::Tensor rows(std::int64_t begin, std::int64_t count) override;
  void sync() { file_.sync(); }

 private:
  models::LogitSource& source_;
  LogitsHeader header_;
  files::OutputFile file_;
  std::int64_t first_row_ = 0;  // of the batch, in the file
};

// Log-probabilities in the place of logits.
class StoredLogits final : public models::LogitSource {
 public:
  // Errors: kNotFound, kIo; kCorrupt for another file or a damaged one.
  explicit StoredLogits(const std::filesystem::path& path);
  // Errors: kInvalidArgument when they are of another text, other windows or another vocabulary.
  void check(const models::Windows& windows, std::int64_t vocab_size) const;
  const LogitsHeader& header() const noexcept { return header_; }
  void begin(const models::WindowBatch& batch) override;
  at::Tensor rows(std::int64_t begin, std::int64_t count) override;

 private:
  files::InputFile file_;
  LogitsHeader header_;
  std::int64_t first_row_ = 0;
};

}  // namespace halfbyte

// A folder that holds a checkpoint's tokenizer: where load_tokenizer looks.
#pragma once

#include <optional>

#include "loader/files/platform.h"

namespace halfbyte::files {

// Who says what is wrong with a checkpoint's weights.
enum class WeightsAre { kCheckedHere, kOpenedLater };

class TokenizerDirectory {
 public:
  // `checkpoint`: as open_checkpoint takes it. Its own folder, unless the source has its tokenizer in another form:
  // then the files that it comes to are written into one of their own, gone with the object. Errors: kIo; what
  // open_checkpoint throws of a source that would have to say what its tokenizer is; not of files that say nothing of
  // one where somebody opens them later anyway.
  explicit TokenizerDirectory(const fs::path& checkpoint, WeightsAre weights = WeightsAre::kCheckedHere);
  const fs::path& path() const noexcept { return path_; }

 private:
  std::optional<TemporaryDirectory> made_;
  fs::path path_;
};

}  // namespace halfbyte::files

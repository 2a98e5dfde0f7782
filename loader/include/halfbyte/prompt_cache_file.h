// A prompt cache that outlives the process, in a file. Needs no LibTorch.
#pragma once

#include <filesystem>
#include <memory>

#include <halfbyte/load_low_bit.h>

namespace halfbyte {

struct PromptCacheFileOptions {
  // Of a sequence that generate() made: its prompt alone, which other prompts may begin with, or all of it, which a
  // conversation goes on from.
  enum class Kept { kPrompt, kAll };
  Kept kept = Kept::kPrompt;
  bool is_read_only = false;  // the file must be there, and save() does nothing
};

// Keys, values and states of one sequence for one model, as it was loaded: the same checkpoint under the same policy
// and arithmetic. A prompt that begins as the sequence does costs its other tokens only. What is read again is as it
// was, bit for bit; kernels and devices may be others than those that computed it. docs/format.md has the file.
// Threads: one at a time; of processes that write one file, one.
class PromptCacheFile {
 public:
  // Reads the file, if there is one. Errors: kAlreadyExists when it is of another model, policy, arithmetic or format;
  // kCorrupt when it is broken or no prompt cache; kNotFound without a folder to write it in, or a file that is only to
  // be read; kIo, kNoResources. The file stays as it was.
  PromptCacheFile(const Model& model, const std::filesystem::path& path, const PromptCacheFileOptions& options = {});
  ~PromptCacheFile();
  PromptCacheFile(PromptCacheFile&&) noexcept;
  PromptCacheFile& operator=(PromptCacheFile&&) noexcept;

  // For GenerateOptions::cache; lives as long as this.
  PromptCache& cache() noexcept;

  // Writes what the cache holds now, if the file does not give that already: its place is taken by a whole new file.
  // Returns whether it wrote. Errors: kAlreadyExists when another process writes it just now; kIo, kNoResources. The
  // file is then as it was.
  bool save();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte

// What a conversion has finished so far, on disk: one self-checked line a tensor, so that a later run can go on after
// the process was killed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/tensor_result.h"
#include "loader/files/platform.h"
#include "models/json/held.h"

namespace halfbyte::convert {

// A line is the xxh3_128 of a JSON text, a space, the text, a newline. The first text says what decides the result's
// bytes (see provenance.h); each other one is a finished tensor, or a layer that was calibrated. Nothing here needs
// syncing: whoever reads a line hashes what it speaks of again.
struct JournalContents {
  models::HeldJson identity;
  std::map<std::size_t, FinishedTensor> finished;   // by index into Plan::tensors
  std::map<std::int64_t, models::HeldJson> layers;  // that were calibrated; see calibrator.h
  std::uint64_t size_bytes = 0;                     // of the sound lines; what follows was torn; 0: to be begun

  // "3 finished tensors", "2 calibrated layers" or both; empty: neither.
  std::string progress() const;
};

// Nothing when there is no journal in `directory`, or not even its first line is whole. Errors: kIo.
std::optional<JournalContents> read_journal(const files::fs::path& directory);

class Journal {
 public:
  // Begins a new one. Errors: kIo, kNoResources; also of append().
  Journal(const files::fs::path& directory, const nlohmann::json& identity);
  // Goes on behind the sound lines of one that was read.
  Journal(const files::fs::path& directory, const JournalContents& contents);

  void append(std::size_t tensor, const FinishedTensor& finished);
  void append_layer(std::int64_t layer, const nlohmann::json& calibrated);

 private:
  void append_line(const nlohmann::json& json);

  files::OutputFile file_;
  std::uint64_t size_bytes_;
};

}  // namespace halfbyte::convert

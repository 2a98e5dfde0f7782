// What a calibration has on the disk: of each finished layer the codes, of the last one the hidden states that it
// gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "convert/calibrate/states.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert::calibrate {

// Where the codes of one matrix begin in the file of its layer.
struct StoredMatrix {
  std::size_t tensor;  // index into Plan::tensors
  std::size_t matrix;  // of a stack
  std::uint64_t begin;
};

// A line of the journal. The hashes decide whether it is believed.
struct LayerRecord {
  std::string given;                                  // the hidden states that the layer was given
  std::string source;                                 // its tensors
  std::string codes;                                  // the file of its codes
  std::string states;                                 // the hidden states that it gave; of the last layer nobody's
  std::string quantized;                              // those of the quantised model, where the method follows it
  std::string part_states = {}, part_quantized = {};  // of the sequences of the part that wrote this; empty: of all
  std::int64_t searched = 0;                          // matrices that had too few tokens for the method
  std::vector<StoredMatrix> matrices;
};
nlohmann::json json_of(const LayerRecord& record);
std::optional<LayerRecord> layer_record(const nlohmann::json& json);  // nothing: some other version wrote it

// Errors of all: kIo, kNoResources; kInterrupted after a stop.

// One matrix after another.
class CodesWriter {
 public:
  CodesWriter() = default;  // hashes alone
  explicit CodesWriter(const files::fs::path& path);
  // Returns where it begins.
  std::uint64_t add(std::span<const std::byte> bytes);
  // After the last one: the hash of the file. Errors: also of what could not be written before.
  std::string close();

 private:
  std::unique_ptr<files::OutputFile> file_;
  std::uint64_t written_ = 0;
  files::Hash128 hash_;
};

class LayerFiles {
 public:
  // `own`: where the states of this run's sequences are; `directory` itself where it has all.
  LayerFiles(files::fs::path directory, files::fs::path own, StatesShape shape)
      : directory_(std::move(directory)), own_(std::move(own)), shape_(shape) {}

  files::fs::path codes(std::int64_t layer) const;
  // What the layer is given: in one file and in another by turns, so that a layer's stay until the next ones are whole.
  files::fs::path states(std::int64_t layer) const;
  // What the quantised model gives it; the first layer has but one kind.
  files::fs::path quantized_states(std::int64_t layer) const;
  StatesShape shape() const noexcept { return shape_; }

  // Whether a whole file of these bytes is there.
  bool holds(const files::fs::path& path, const std::string& hash, const std::stop_token& stop) const;
  // Removes what nobody could have written here, so that nothing elsewhere is written to.
  void remove_links() const;

 private:
  files::fs::path directory_, own_;
  StatesShape shape_;
};

// Of all tensors whose names begin so, as they are stored.
std::string hash_of_tensors(const files::Checkpoint& source, const std::string& prefix, const std::stop_token& stop);

}  // namespace halfbyte::convert::calibrate

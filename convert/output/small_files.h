// The files beside the data of a result: made here, or copied from the source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/output/data_file_layout.h"
#include "convert/output/destination.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

// Writes each file and records it, for a manifest.
class SmallFiles {
 public:
  SmallFiles(const files::Checkpoint& source, const Destination& destination)
      : source_(source), destination_(destination) {}

  void write(const fs::path& name, const std::string& text);
  void copy(const fs::path& name);  // one of the source's
  // The index, where there are several data files.
  void write_index(const std::vector<DataFileLayout>& files);
  // What the source says in another form.
  void write_generated();

  const std::vector<files::FileRecord>& records() const noexcept { return records_; }

 private:
  const files::Checkpoint& source_;
  const Destination& destination_;
  std::vector<files::FileRecord> records_;
};

// What free space is needed for beside the data files: the source's side files, config.json, the index, the manifest.
std::uint64_t small_file_bytes(const files::Checkpoint& source);

}  // namespace halfbyte::convert

// The data files of a result while they are written: for everything that writes tensors.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "convert/output/data_file_layout.h"
#include "loader/files/platform.h"

namespace halfbyte::convert {

// Thread-safe, for disjoint ranges. Some files are open at a time: there may be more than a process may open.
class DataFiles {
 public:
  // Creates the files in `directory` (one without a name is `directory` itself), or goes on with those that are there;
  // reserves their space and writes their headers. The layouts must outlive this. Errors: kIo, kNoResources; also of
  // the other methods.
  DataFiles(files::fs::path directory, std::span<const DataFileLayout> layouts);

  std::shared_ptr<files::OutputFile> open(std::size_t file);
  void write(const PartPlace& place, std::uint64_t begin, std::span<const std::byte> bytes);
  void read(const PartPlace& place, std::uint64_t begin, std::span<std::byte> out);
  void sync();

 private:
  files::fs::path directory_;
  std::span<const DataFileLayout> layouts_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<files::OutputFile>> open_;  // by index; null: closed
  std::deque<std::size_t> order_;                         // of those that are open, the oldest first
};

}  // namespace halfbyte::convert

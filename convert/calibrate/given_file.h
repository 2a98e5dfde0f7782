// What one of several runs gives the others at a step: a file of pieces and, behind them, a table of their hashes, so
// that nothing is taken for given that was lost on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loader/files/platform.h"

namespace halfbyte::convert::calibrate {

// By which a reader knows the whole file. Units: bytes.
struct GivenMark {
  std::uint64_t table = 0;   // where the table begins
  std::uint64_t pieces = 0;  // 0: nothing was given, and there is no file
  std::string hash = {};     // of the table
};

struct GivenPiece {
  std::uint64_t begin, size;
  char hash[32];
};

class GivenWriter {
 public:
  explicit GivenWriter(const files::fs::path& path) : file_(path, 0, files::OutputFile::Existing::kGoOn) {}
  // Returns where the piece begins. Errors: kIo, kNoResources.
  std::uint64_t add(std::span<const std::byte> bytes);
  // After the last one. Errors: kIo, kNoResources, also of what could not be written before.
  GivenMark close();

 private:
  files::OutputFile file_;
  std::uint64_t size_ = 0;
  std::vector<GivenPiece> pieces_;
};

class GivenReader {
 public:
  // `giver`: "part 2 of 3". Errors of all: kIo; kCorrupt where the file is not as it was given, naming both.
  GivenReader(const files::fs::path& path, const GivenMark& mark, const std::string& giver);
  const files::fs::path& path() const noexcept { return file_.path(); }
  // Of the piece that begins there.
  std::uint64_t size_of(std::uint64_t begin) const { return piece(begin).size; }
  // A whole piece.
  void read(std::uint64_t begin, std::span<std::byte> out) const;

 private:
  [[noreturn]] void refuse(const std::string& what) const;
  const GivenPiece& piece(std::uint64_t begin) const;

  files::InputFile file_;
  std::string giver_;
  std::vector<GivenPiece> pieces_;  // by where they begin
};

}  // namespace halfbyte::convert::calibrate

#include "convert/calibrate/given_file.h"

#include <algorithm>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/hash.h"
#include "loader/files/printable.h"

namespace halfbyte::convert::calibrate {
namespace {

std::string hash_of(std::span<const std::byte> bytes) {
  return files::hash_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool has_hash(std::span<const std::byte> bytes, const GivenPiece& piece) {
  return hash_of(bytes) == std::string_view(piece.hash, sizeof piece.hash);
}

}  // namespace

std::uint64_t GivenWriter::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return size_;
  GivenPiece& piece = pieces_.emplace_back(GivenPiece{size_, bytes.size(), {}});
  std::ranges::copy(hash_of(bytes), piece.hash);
  file_.write(size_, bytes);
  size_ += bytes.size();
  return piece.begin;
}

GivenMark GivenWriter::close() {
  const auto table = std::as_bytes(std::span(pieces_));
  file_.write(size_, table);
  file_.close();
  return {size_, pieces_.size(), hash_of(table)};
}

GivenReader::GivenReader(const files::fs::path& path, const GivenMark& mark, const std::string& giver)
    : file_(path), giver_(giver) {
  const std::uint64_t all = file_.size_bytes();
  if (mark.table > all || (all - mark.table) / sizeof(GivenPiece) != mark.pieces ||
      (all - mark.table) % sizeof(GivenPiece) != 0)
    refuse("it has " + std::to_string(all) + " bytes");
  pieces_.resize(mark.pieces);
  const auto table = std::as_writable_bytes(std::span(pieces_));
  file_.read(mark.table, table);
  if (hash_of(table) != mark.hash) refuse("its table of hashes differs");
}

void GivenReader::refuse(const std::string& what) const {
  throw Error(ErrorCode::kCorrupt, files::printable_path(file_.path()) + ": is not what " + giver_ + " gave (" + what +
                                       "): lost on the way, or the disk is full; run all parts again");
}

const GivenPiece& GivenReader::piece(std::uint64_t begin) const {
  const auto found = std::ranges::lower_bound(pieces_, begin, {}, &GivenPiece::begin);
  if (found == pieces_.end() || found->begin != begin) refuse("nothing begins at " + std::to_string(begin));
  return *found;
}

void GivenReader::read(std::uint64_t begin, std::span<std::byte> out) const {
  if (out.empty()) return;
  const GivenPiece& found = piece(begin);
  if (found.size != out.size()) {
    refuse("at " + std::to_string(begin) + " are " + std::to_string(found.size) + " bytes, not " +
           std::to_string(out.size()));
  }
  file_.read(begin, out);
  if (!has_hash(out, found)) refuse("the bytes at " + std::to_string(begin) + " differ");
}

}  // namespace halfbyte::convert::calibrate

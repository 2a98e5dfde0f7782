#include "convert/output/data_writer.h"

#include <algorithm>

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kReadBackBytes = std::uint64_t{1} << 20;

}  // namespace

DataWriter::DataWriter(const files::fs::path& directory, const ResultLayout& layout, Journal& journal)
    : layout_(layout), journal_(journal), files_(directory, layout.files), results_(layout.places.size()) {}

// Scales come in pieces between the codes, but are hashed after them; reading them back needs no memory for them all.
void DataWriter::hash_written(const PartPlace& place) {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < place.size_bytes; at += block.size()) {
    block.resize(std::min(kReadBackBytes, place.size_bytes - at));
    files_.read(place, at, block);
    hash_.update(block);
  }
}

bool DataWriter::holds(std::size_t tensor, const std::string& xxh3_128) {
  for (const PartPlace& part : layout_.places[tensor]) hash_written(part);
  const bool is_equal = hash_.hex() == xxh3_128;
  hash_.reset();
  return is_equal;
}

void DataWriter::write(const ResultBlock& block) {
  const TensorPlaces& places = layout_.places[block.tensor];
  const PartPlace& codes = place(places, files::Part::kCodes);
  files_.write(codes, block.codes_begin, block.codes);
  hash_.update(block.codes);
  write_behind_.add(files_.open(codes.file), codes.offset + block.codes_begin, block.codes.size());
  if (block.is_packed) files_.write(place(places, files::Part::kScale), block.scale_begin, block.scale);
}

void DataWriter::finish(std::size_t tensor, const std::vector<SmallPart>& rest, FinishedTensor finished) {
  const TensorPlaces& places = layout_.places[tensor];
  for (const SmallPart& each : rest) files_.write(place(places, each.part), 0, each.bytes);
  for (std::size_t part = 1; part < files::kPartCount; ++part) hash_written(places[part]);
  finished.result.xxh3_128 = hash_.hex();
  hash_.reset();
  journal_.append(tensor, finished);
  results_[tensor] = std::move(finished.result);
}

void DataWriter::sync() {
  write_behind_.finish();
  files_.sync();
}

}  // namespace halfbyte::convert

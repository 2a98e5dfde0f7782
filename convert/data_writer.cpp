#include "convert/data_writer.h"

#include <algorithm>

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kReadBackBytes = std::uint64_t{1} << 20;

}  // namespace

DataWriter::DataWriter(const files::fs::path& directory, const ResultLayout& layout)
    : layout_(layout), hashes_(layout.places.size()) {
  for (const DataFileLayout& file : layout.files) {
    files_.push_back(std::make_unique<files::OutputFile>(directory / file.name, file.size_bytes));
    files_.back()->write(0, std::as_bytes(std::span(file.header)));
  }
}

void DataWriter::write(const PartPlace& place, std::uint64_t begin, std::span<const std::byte> bytes) {
  files_[place.file]->write(place.offset + begin, bytes);
}

// Scales come in pieces between the codes, but are hashed after them; reading them back needs no memory for them all.
void DataWriter::hash_written(const PartPlace& place) {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < place.size_bytes; at += block.size()) {
    block.resize(std::min(kReadBackBytes, place.size_bytes - at));
    files_[place.file]->read(place.offset + at, block);
    hash_.update(block);
  }
}

void DataWriter::finish(const ResultBlock& block) {
  const TensorPlaces& places = layout_.places[block.tensor];
  for (const SmallPart& rest : block.rest) write(place(places, rest.part), 0, rest.bytes);
  if (block.is_packed) {
    for (std::size_t part = 1; part < files::kPartCount; ++part) hash_written(places[part]);
  }
  hashes_[block.tensor] = hash_.hex();
  hash_.reset();
}

void DataWriter::run(Channel<ResultBlock>& in, const std::function<void(ResultBlock)>& recycle, std::stop_token stop) {
  while (auto block = in.pop(stop)) {
    const TensorPlaces& places = layout_.places[block->tensor];
    write(place(places, files::Part::kCodes), block->codes_begin, block->codes.bytes());
    hash_.update(block->codes.bytes());
    if (block->is_packed) write(place(places, files::Part::kScale), block->scale_begin, block->scale.bytes());
    if (block->is_last) finish(*block);
    recycle(std::move(*block));
  }
}

void DataWriter::sync() {
  for (const auto& file : files_) file->sync();
}

}  // namespace halfbyte::convert

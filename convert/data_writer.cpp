#include "convert/data_writer.h"

#include <algorithm>

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kReadBackBytes = std::uint64_t{1} << 20;

}  // namespace

DataWriter::DataWriter(files::fs::path directory, const ResultLayout& layout, Journal& journal)
    : layout_(layout), journal_(journal), directory_(std::move(directory)), results_(layout.places.size()) {
  for (std::size_t i = 0; i < layout.files.size(); ++i)
    file(i).write(0, std::as_bytes(std::span(layout.files[i].header)));
}

files::OutputFile& DataWriter::file(std::size_t index) {
  if (open_ && open_index_ == index) return *open_;
  const DataFileLayout& wanted = layout_.files[index];
  open_ = std::make_unique<files::OutputFile>(directory_ / wanted.name, wanted.size_bytes,
                                              files::OutputFile::Existing::kGoOn);
  open_index_ = index;
  return *open_;
}

void DataWriter::write(const PartPlace& place, std::uint64_t begin, std::span<const std::byte> bytes) {
  file(place.file).write(place.offset + begin, bytes);
}

// Scales come in pieces between the codes, but are hashed after them; reading them back needs no memory for them all.
void DataWriter::hash_written(const PartPlace& place) {
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < place.size_bytes; at += block.size()) {
    block.resize(std::min(kReadBackBytes, place.size_bytes - at));
    file(place.file).read(place.offset + at, block);
    hash_.update(block);
  }
}

bool DataWriter::holds(std::size_t tensor, const std::string& xxh3_128) {
  for (const PartPlace& part : layout_.places[tensor]) hash_written(part);
  const bool is_equal = hash_.hex() == xxh3_128;
  hash_.reset();
  return is_equal;
}

void DataWriter::finish(ResultBlock& block) {
  const TensorPlaces& places = layout_.places[block.tensor];
  for (const SmallPart& rest : block.rest) write(place(places, rest.part), 0, rest.bytes);
  if (block.is_packed) {
    for (std::size_t part = 1; part < files::kPartCount; ++part) hash_written(places[part]);
  }
  block.finished.result.xxh3_128 = hash_.hex();
  hash_.reset();
  journal_.append(block.tensor, block.finished);
  results_[block.tensor] = std::move(block.finished.result);
}

void DataWriter::run(Channel<ResultBlock>& in, const std::function<void(ResultBlock)>& recycle,
                     const std::stop_token& stop) {
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
  for (std::size_t i = 0; i < layout_.files.size(); ++i) file(i).sync();
}

}  // namespace halfbyte::convert

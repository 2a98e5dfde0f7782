#include "convert/output/data_files.h"

namespace halfbyte::convert {
namespace {

constexpr std::size_t kMostOpen = 64;

}  // namespace

DataFiles::DataFiles(files::fs::path directory, std::span<const DataFileLayout> layouts)
    : directory_(std::move(directory)), layouts_(layouts), open_(layouts.size()) {
  for (std::size_t i = 0; i < layouts.size(); ++i) open(i)->write(0, std::as_bytes(std::span(layouts[i].header)));
}

std::shared_ptr<files::OutputFile> DataFiles::open(std::size_t file) {
  const std::lock_guard lock(mutex_);
  if (open_[file]) return open_[file];
  const DataFileLayout& layout = layouts_[file];
  const files::fs::path path = layout.name.empty() ? directory_ : directory_ / layout.name;
  open_[file] = std::make_shared<files::OutputFile>(path, layout.size_bytes, files::OutputFile::Existing::kGoOn);
  order_.push_back(file);
  if (order_.size() > kMostOpen) {
    open_[order_.front()].reset();  // whoever writes to it still holds it
    order_.pop_front();
  }
  return open_[file];
}

void DataFiles::write(const PartPlace& place, std::uint64_t begin, std::span<const std::byte> bytes) {
  open(place.file)->write(place.offset + begin, bytes);
}

void DataFiles::read(const PartPlace& place, std::uint64_t begin, std::span<std::byte> out) {
  open(place.file)->read(place.offset + begin, out);
}

void DataFiles::sync() {
  for (std::size_t i = 0; i < layouts_.size(); ++i) open(i)->sync();
}

}  // namespace halfbyte::convert

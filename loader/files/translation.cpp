#include "loader/files/translation.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::files {

std::size_t file_on_disk(const Checkpoint& checkpoint, std::size_t file) {
  if (checkpoint.data_files[file]->is_on_disk()) return file;
  const fs::path& path = checkpoint.data_files[file]->path();
  const auto found = std::ranges::find_if(checkpoint.data_files, [&](const auto& f) { return f->path() == path; });
  return static_cast<std::size_t>(found - checkpoint.data_files.begin());
}

Translation::Translation(Checkpoint& checkpoint, const fs::path& path)
    : checkpoint_(checkpoint), file_(std::make_shared<TranslatedFile>(path)) {}

void Translation::consume(const StoredTensor& tensor) { consumed_.insert(tensor.name); }

void Translation::add(std::string name, Dtype dtype, std::vector<std::int64_t> shape,
                      std::unique_ptr<TensorBytes> bytes) {
  std::uint64_t size = static_cast<std::uint64_t>(size_bytes(dtype));
  for (const std::int64_t length : shape) size *= static_cast<std::uint64_t>(length);
  if (size != bytes->size_bytes())
    throw Error(ErrorCode::kCorrupt, printable_path(file_->path()) + ": tensor " + in_quotes(name) +
                                         " does not fill its shape " + printable(shape));
  added_.push_back(
      {std::move(name), dtype, std::move(shape), checkpoint_.data_files.size(), file_->add(std::move(bytes)), size});
}

void Translation::change_tensors() {
  if (!consumed_.empty())
    std::erase_if(checkpoint_.tensors, [&](const StoredTensor& tensor) { return consumed_.contains(tensor.name); });
  if (added_.empty()) return;
  for (StoredTensor& tensor : added_) tensor.file = checkpoint_.data_files.size();
  checkpoint_.data_files.push_back(file_);
  checkpoint_.data_offsets.push_back(0);
  for (StoredTensor& tensor : added_) checkpoint_.tensors.push_back(std::move(tensor));
}

namespace {

void index_again(Checkpoint& checkpoint) {
  checkpoint.size_bytes = 0;
  for (const StoredTensor& tensor : checkpoint.tensors) checkpoint.size_bytes += tensor.size_bytes;
  index_tensors(checkpoint);
}

}  // namespace

void Translation::finish() {
  change_tensors();
  index_again(checkpoint_);
}

void Translation::finish_all(std::span<Translation* const> translations) {
  for (Translation* translation : translations) translation->change_tensors();
  if (!translations.empty()) index_again(translations[0]->checkpoint_);
}

}  // namespace halfbyte::files

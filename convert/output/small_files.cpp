#include "convert/output/small_files.h"

#include "loader/files/directory.h"
#include "loader/files/file_tree.h"
#include "loader/files/hash.h"

namespace halfbyte::convert {
namespace {

// Units: bytes.
constexpr std::uint64_t kRoomForMadeFiles = 4'000'000;

}  // namespace

void SmallFiles::write(const fs::path& name, const std::string& text) {
  destination_.write_file(name, text);
  records_.push_back({name.string(), text.size(), text.size(), files::hash_hex(text)});
}

void SmallFiles::copy(const fs::path& name) { records_.push_back(destination_.copy_file(source_.directory / name)); }

void SmallFiles::write_index(const std::vector<DataFileLayout>& files) {
  if (files.size() > 1) write(files::kIndexFile, index_text(files));
}

void SmallFiles::write_generated() {
  for (const auto& [name, text] : source_.generated_files) write(name, text());
}

std::uint64_t small_file_bytes(const files::Checkpoint& source) {
  std::uint64_t out = kRoomForMadeFiles;
  for (const fs::path& name : source.side_files) out += files::file_size(source.directory / name);
  return out;
}

}  // namespace halfbyte::convert

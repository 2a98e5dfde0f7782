#include "convert/kept_packed.h"

#include <algorithm>
#include <vector>

#include "convert/output/write_progress.h"
#include "loader/files/finite.h"
#include "loader/files/hash.h"
#include "loader/files/parallel.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

std::vector<const files::TensorRecord*> packed_of(const files::Checkpoint& source) {
  std::vector<const files::TensorRecord*> out;
  for (const files::TensorRecord& record : source.manifest.tensors) {
    if (record.scheme) out.push_back(&record);
  }
  return out;
}

using Places = std::map<std::string_view, const PartPlace*>;  // of kept tensors, by name

// The parts one after another.
std::string hash_of(const files::TensorRecord& record, const Places& places, const ResultLayout& layout,
                    const files::fs::path& directory, const std::stop_token& stop) {
  files::Hash128 hash;
  std::vector<std::byte> block;
  for (const std::string& part : record.parts.names) {
    if (part.empty()) continue;
    const PartPlace& place = *places.at(part);
    const files::InputFile file(directory / layout.files[place.file].name);
    for (std::uint64_t at = 0; at < place.size_bytes; at += block.size()) {
      check_stop(stop);
      block.resize(std::min(kBlockBytes, place.size_bytes - at));
      file.read(place.offset + at, block);
      hash.update(block);
    }
  }
  return hash.hex();
}

}  // namespace

void check_kept_packed(const files::Checkpoint& source) {
  const auto packed = packed_of(source);
  files::parallel_for(packed.size(), 0, [&](std::size_t i) { files::check_scales(source, *packed[i]); });
}

std::map<std::string, std::string> hash_kept_packed(const files::Checkpoint& source, const Plan& plan,
                                                    const ResultLayout& layout, const files::fs::path& directory,
                                                    const std::stop_token& stop) {
  Places places;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (!plan.tensors[i].part_of.empty())
      places.emplace(source.tensors[plan.tensors[i].source].name, &place(layout.places[i], files::Part::kCodes));
  }
  const auto packed = packed_of(source);
  std::vector<std::string> hashes(packed.size());
  files::parallel_for(packed.size(), 0,
                      [&](std::size_t i) { hashes[i] = hash_of(*packed[i], places, layout, directory, stop); });
  std::map<std::string, std::string> out;
  for (std::size_t i = 0; i < packed.size(); ++i) out.emplace(packed[i]->name, std::move(hashes[i]));
  return out;
}

}  // namespace halfbyte::convert

#include "loader/files/gathered_units.h"

#include <utility>

namespace halfbyte::files {
namespace {

std::uint64_t units_of(const std::vector<std::unique_ptr<TensorBytes>>& sources, std::uint64_t unit_bytes) {
  std::uint64_t out = 0;
  for (const auto& source : sources) out += source->size_bytes();
  return out / unit_bytes;
}

}  // namespace

GatheredUnits::GatheredUnits(std::vector<std::unique_ptr<TensorBytes>> sources, std::vector<Place> places,
                             std::uint64_t unit_bytes)
    : UnitBytes(unit_bytes, units_of(sources, unit_bytes)),
      sources_(std::move(sources)),
      places_(std::move(places)),
      counts_(sources_.size(), 0),
      unit_bytes_(unit_bytes) {
  for (const Place& place : places_) ++counts_[place.source];
}

std::uint64_t GatheredUnits::offset_of(std::uint64_t unit) const noexcept {
  const Place& place = places_[unit % places_.size()];
  return (unit / places_.size() * counts_[place.source] + place.index) * unit_bytes_;
}

// Units that follow each other in their source are read at once.
void GatheredUnits::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  for (std::uint64_t unit = first; unit < first + count;) {
    const std::size_t source = places_[unit % places_.size()].source;
    const std::uint64_t begin = offset_of(unit);
    std::uint64_t run = 1;
    while (unit + run < first + count && places_[(unit + run) % places_.size()].source == source &&
           offset_of(unit + run) == begin + run * unit_bytes_)
      ++run;
    sources_[source]->read(begin, {out, run * unit_bytes_});
    out += run * unit_bytes_;
    unit += run;
  }
}

}  // namespace halfbyte::files

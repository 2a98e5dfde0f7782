// A tensor whose units (rows, or shares of rows) lie in another order, or in several tensors, of another layout.
#pragma once

#include <memory>
#include <vector>

#include "loader/files/translated_file.h"

namespace halfbyte::files {

class GatheredUnits final : public UnitBytes {
 public:
  struct Place {
    std::size_t source;
    std::uint64_t index;  // among those that the source has of a period
  };
  // Of every places.size() units, in order: where each is. Each source has the same number of periods. `unit_bytes`: of
  // every source.
  GatheredUnits(std::vector<std::unique_ptr<TensorBytes>> sources, std::vector<Place> places, std::uint64_t unit_bytes);

 protected:
  void read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const override;

 private:
  std::uint64_t offset_of(std::uint64_t unit) const noexcept;  // in its source

  std::vector<std::unique_ptr<TensorBytes>> sources_;
  std::vector<Place> places_;
  std::vector<std::uint64_t> counts_;  // of each source's units a period
  std::uint64_t unit_bytes_;
};

}  // namespace halfbyte::files

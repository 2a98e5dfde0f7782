// Which file lies where in this process's memory, for whoever has to say what a failed access was an access to: a
// handler of signals, which a program installs (tools/cli/sudden_ends.h) and a library never does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "loader/files/data_file.h"

namespace halfbyte::files {

// Made by MappedFile. Errors: std::bad_alloc.
void remember_mapping(const fs::path& path, std::span<const std::byte> bytes);
void forget_mapping(std::span<const std::byte> bytes) noexcept;

struct Mapping {
  const char* path = nullptr;       // as it was opened; null: no file of ours lies there
  const char* printable = nullptr;  // as a message shows it
  std::uint64_t size_bytes = 0;
};

// The file that the address belongs to. Async-signal-safe; what it points to lives as long as the mapping.
Mapping mapping_at(const void* address) noexcept;

}  // namespace halfbyte::files

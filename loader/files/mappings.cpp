#include "loader/files/mappings.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

struct Slot {
  std::atomic<std::uintptr_t> begin{0};  // 0: free. Written last, read first
  std::uint64_t size_bytes = 0;
  // Not strings, which would end with the program while a handler may still read.
  char* path = nullptr;
  char* printable = nullptr;
};

// Never freed: a handler may be reading.
struct Chunk {
  std::array<Slot, 64> slots;
  std::atomic<Chunk*> next{nullptr};
};

Chunk first_chunk;    // a handler must find it without its being made first
std::mutex changing;  // of who writes; who reads takes no lock

char* copy_of(const std::string& text) {
  char* out = ::strdup(text.c_str());
  if (!out) throw std::bad_alloc();
  return out;
}

Slot& free_slot() {
  for (Chunk* chunk = &first_chunk;; chunk = chunk->next) {
    for (Slot& slot : chunk->slots) {
      if (slot.begin == 0) return slot;
    }
    if (!chunk->next) chunk->next = new Chunk;
  }
}

Slot* slot_of(std::uintptr_t address) noexcept {
  for (Chunk* chunk = &first_chunk; chunk; chunk = chunk->next) {
    for (Slot& slot : chunk->slots) {
      const std::uintptr_t begin = slot.begin;
      if (begin != 0 && address >= begin && address - begin < slot.size_bytes) return &slot;
    }
  }
  return nullptr;
}

}  // namespace

void remember_mapping(const fs::path& path, std::span<const std::byte> bytes) {
  const std::lock_guard lock(changing);
  Slot& slot = free_slot();
  slot.path = copy_of(path.string());
  slot.printable = copy_of(printable_path(path));
  slot.size_bytes = bytes.size();
  slot.begin = reinterpret_cast<std::uintptr_t>(bytes.data());
}

void forget_mapping(std::span<const std::byte> bytes) noexcept {
  const std::lock_guard lock(changing);
  Slot* slot = slot_of(reinterpret_cast<std::uintptr_t>(bytes.data()));
  if (!slot) return;
  slot->begin = 0;
  std::free(slot->path);
  std::free(slot->printable);
}

Mapping mapping_at(const void* address) noexcept {
  const Slot* slot = slot_of(reinterpret_cast<std::uintptr_t>(address));
  if (!slot) return {};
  return {slot->path, slot->printable, slot->size_bytes};
}

}  // namespace halfbyte::files

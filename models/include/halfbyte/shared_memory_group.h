// A group of processes of one machine, or of threads of one process, by memory that all of them see. Needs no LibTorch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <halfbyte/group.h>

namespace halfbyte {

struct SharedMemoryOptions {
  // How long a rank is waited for that gives no sign, while this process runs.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

// How much memory a group takes. Units: bytes.
std::size_t shared_memory_bytes(int size);

// Joins. `memory`: aligned to 64 bytes, of shared_memory_bytes(size), zeros before the first rank joins, the same for
// all; it must outlive the group. Every rank adds all values in the order of the ranks. A process that has ended, and that
// whoever started it has waited for, is missed within a second: all are in one namespace of process ids. Errors:
// kInvalidArgument.
std::shared_ptr<Group> join_shared_memory(std::span<std::byte> memory, int rank, int size,
                                          const SharedMemoryOptions& options = {});
// The same of a file that is mapped, one of memfd_create or of /dev/shm, say; the group keeps the mapping. Errors: also
// kIo.
std::shared_ptr<Group> join_shared_memory_file(int descriptor, int rank, int size,
                                               const SharedMemoryOptions& options = {});

}  // namespace halfbyte

// A group of processes of any machines, over a network: c10d's store and Gloo (torch.distributed). This header needs no
// LibTorch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <halfbyte/group.h>

namespace halfbyte {

struct NetworkOptions {
  // Where rank 0 listens for the others: MASTER_ADDR and MASTER_PORT.
  std::string host = "127.0.0.1";
  std::uint16_t port = 29'500;
  // Where this rank listens, and nowhere else. Empty: on the loopback interface, for ranks of one machine.
  std::string interface = {};
  // Known to all ranks; who has another is refused. What ranks say to each other is neither encrypted nor signed.
  std::string secret = {};
  // How long a rank is waited for, to join or to go on.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Whoever started the ranks listens at that place already, for all its groups: torchrun does.
  bool is_store_there = false;
  // Of groups that one store is for, one after another: which this is.
  std::string name = {};
};

// Joins when all have come. Errors: kInvalidArgument; kIo naming the rank that has not come; kContract naming one that
// is there twice, or has another secret; kUnsupported where halfbyte was built without it (has_network_groups()).
std::shared_ptr<Group> join_network(int rank, int size, const NetworkOptions& options = {});

// LibTorch 2.13 with c10d, and Gloo's headers, were there.
bool has_network_groups() noexcept;

}  // namespace halfbyte

// A group by c10d, LibTorch's own engine (torch.distributed): for a host that has a backend of its own.
#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <halfbyte/group.h>

namespace halfbyte {

// Of a backend of any kind that takes tensors on the CPU (Gloo, MPI). Its timeouts are the group's; all ranks are to
// make one of theirs, and to leave the backend alone in the meantime. part() is not of it. Errors of its methods: kIo
// with what the backend said.
std::shared_ptr<Group> group_of(c10::intrusive_ptr<c10d::Backend> backend);

}  // namespace halfbyte

// Groups within a group: ranks of one machine add by what they share, and one of each machine by the network. Needs no
// LibTorch.
#pragma once

#include <memory>

#include <halfbyte/group.h>

namespace halfbyte {

// `whole`: of all ranks, those of a machine one after another, equally many on each. `local`: of this machine's, in the
// same order. Errors: kInvalidArgument; those of whole->part().
std::shared_ptr<Group> nested_group(std::shared_ptr<Group> whole, std::shared_ptr<Group> local);

}  // namespace halfbyte

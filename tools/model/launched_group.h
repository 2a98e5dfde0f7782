// The group that `halfbyte launch` started this process for.
#pragma once

#include <memory>

#include <halfbyte/group.h>

namespace halfbyte::cli {

// Joined at the first call; null: it was started alone. Errors: kInvalidArgument, kIo.
std::shared_ptr<Group> launched_group();
bool is_first_rank();  // or it was started alone

}  // namespace halfbyte::cli

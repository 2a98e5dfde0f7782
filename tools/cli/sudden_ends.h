// Ends that no exception reaches: memory that runs out where nothing catches, a limit on a file's size, a file that
// becomes shorter while it is mapped. Each is one line and an exit status. For the programs; a library leaves signals
// be.
#pragma once

#include <filesystem>

namespace halfbyte::cli {

// From here on memory that runs out where nobody catches it (before main(), in a thread of a library's) is said and
// ends the process with ExitStatus::kNoResources, an access to a mapped file that has no such byte any more with
// kBadData, one that the disk does not give with kFailed; writing beyond the limit on a file's size is an error of the
// write.
void install_sudden_ends() noexcept;

// Where this process may have only so much address space: tries whether `program`, as it starts, gets along with it.
// Errors: kNoResources.
void check_room_for(const std::filesystem::path& program);

// Where address space is limited, whether there is some left for what libraries take in passing: some of them end the
// process when they do not get it. Errors: kNoResources.
void check_room_left();

}  // namespace halfbyte::cli

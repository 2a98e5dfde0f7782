// What the operating system refused, as Error.
#pragma once

#include <filesystem>
#include <string_view>

#include <halfbyte/error.h>

namespace halfbyte::files {

// kNotFound, kAlreadyExists, kNoResources (disk, quota, memory, a limit on a file's size) or kIo, for one of errno's.
ErrorCode code_of(int error_number) noexcept;

// Throws "PATH: DOING failed: REASON", and what helps where that is known.
[[noreturn]] void fail_on(const std::filesystem::path& path, std::string_view doing, int error_number);

}  // namespace halfbyte::files

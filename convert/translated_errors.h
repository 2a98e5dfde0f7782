// What the standard library throws while a checkpoint is written, as Error.
#pragma once

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include <halfbyte/error.h>

#include "loader/files/printable.h"

namespace halfbyte::convert {

// Returns work(). `doing` and `source` name it where memory runs out: "converting", the checkpoint that is read.
template <class Work>
auto with_translated_errors(std::string_view doing, const std::filesystem::path& source, const Work& work) {
  try {
    return work();
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(error.code() == std::errc::no_space_on_device ? ErrorCode::kNoResources : ErrorCode::kIo,
                files::printable(error.what(), 1024));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kNoResources,
                "out of memory while " + std::string(doing) + " " + files::printable_path(source));
  }
}

}  // namespace halfbyte::convert

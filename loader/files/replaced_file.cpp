#include "loader/files/replaced_file.h"

#include <algorithm>
#include <system_error>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr const char* kInner = "file";

bool is_ours(const fs::path& work) {
  return type_of(work) == fs::file_type::directory && std::ranges::all_of(entries(work), [](const fs::path& inside) {
           return inside.filename() == kInner && type_of(inside) == fs::file_type::regular;
         });
}

}  // namespace

ReplacedFile::ReplacedFile(const fs::path& path, std::uint64_t size_bytes)
    : final_(resolved(files::absolute(path))), work_(final_.string() + ".partial") {
  claim();
  try {
    file_ = std::make_unique<OutputFile>(work_ / kInner, size_bytes);
  } catch (...) {
    release();
    throw;
  }
}

ReplacedFile::~ReplacedFile() {
  if (lock_) release();
}

void ReplacedFile::claim() {
  if (!files::is_directory(final_.parent_path()))
    throw Error(ErrorCode::kNotFound, printable_path(final_.parent_path()) + ": there is no such directory");
  const bool is_new = make_directory(work_);
  if (!is_new && !is_ours(work_)) {
    throw Error(ErrorCode::kAlreadyExists,
                printable_path(work_) + ": is in the way and not of halfbyte; move it, or give another name");
  }
  lock_ = std::make_unique<DirectoryLock>(work_);
  if (type_of(work_ / kInner) != fs::file_type::not_found) remove_tree(work_ / kInner);
}

void ReplacedFile::release() noexcept {
  file_.reset();
  std::error_code ignored;
  fs::remove(work_ / kInner, ignored);
  fs::remove(work_, ignored);
  lock_.reset();
}

void ReplacedFile::commit() {
  file_->sync();
  if (type_of(final_) == fs::file_type::not_found) {
    rename_new(work_ / kInner, final_);
  } else {
    exchange(work_ / kInner, final_);
  }
  sync_directory(final_.parent_path());
  release();
}

}  // namespace halfbyte::files

#include "convert/output/destination.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <halfbyte/error.h>

#include "convert/output/read_back.h"
#include "loader/files/hash.h"
#include "loader/files/manifest.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kCopyBlockBytes = std::uint64_t{1} << 20;

using files::printable_path;

constexpr const char* kInner = "checkpoint";
constexpr const char* kInWork[] = {kInner, "journal"};

// What may be overwritten: an empty directory or a checkpoint, never somebody's other files.
bool is_replaceable(const fs::path& directory) {
  if (fs::is_empty(directory) || fs::exists(directory / files::kManifestFile)) return true;
  return std::ranges::any_of(fs::directory_iterator(directory), [](const fs::directory_entry& entry) {
    return entry.path().extension() == ".safetensors";
  });
}

// Whether a NAME.partial was made here, and may be taken over.
bool is_ours(const fs::path& work, Destination::Kind kind) {
  if (!fs::is_directory(fs::symlink_status(work))) return false;
  const bool has_others = std::ranges::any_of(fs::directory_iterator(work), [](const fs::directory_entry& entry) {
    return std::ranges::find(kInWork, entry.path().filename()) == std::end(kInWork);
  });
  return !has_others || (kind == Destination::Kind::kDirectory && is_replaceable(work));
}

bool is_inside(const fs::path& inner, const fs::path& outer) {
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

std::uint64_t reserved_bytes(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::exists(path) ? fs::file_size(path) : 0;
  std::uint64_t out = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) out += entry.file_size();
  }
  return out;
}

fs::path resolved(const fs::path& path) {
  fs::path out = fs::weakly_canonical(path);
  return out.has_filename() ? out : out.parent_path();
}

}  // namespace

fs::path destination_path(const fs::path& path) {
  fs::path out = fs::absolute(path).lexically_normal();
  if (out.has_relative_path() && !out.has_filename()) out = out.parent_path();
  if (out.has_filename()) return out;
  throw Error(ErrorCode::kInvalidArgument, printable_path(path) + ": this is no name for something new");
}

fs::path work_path(const fs::path& destination) { return destination.string() + ".partial"; }

void remove_leftovers(const fs::path& destination) noexcept try {
  const fs::path work = work_path(destination);
  if (!is_ours(work, Destination::Kind::kDirectory)) return;
  const files::DirectoryLock lock(work);
  fs::remove_all(work);
} catch (const std::exception&) {  // somebody works there, or it cannot be deleted: no harm is done
}

void check_apart(const fs::path& source, const fs::path& destination) {
  const fs::path from = resolved(source);
  const fs::path to = resolved(destination), work = resolved(work_path(destination_path(destination)));
  if (!is_inside(from, to) && !is_inside(to, from) && !is_inside(from, work) && !is_inside(work, from)) return;
  throw Error(ErrorCode::kInvalidArgument, printable_path(destination) + " and the source " + printable_path(source) +
                                               " lie within each other; give a destination elsewhere");
}

Destination::Destination(const fs::path& path, Options options)
    : final_(destination_path(path)),
      work_(convert::work_path(final_)),
      partial_(work_ / kInner),
      overwrite_(options.overwrite),
      kind_(options.kind) {
  if (!fs::is_directory(final_.parent_path())) {
    throw Error(ErrorCode::kNotFound,
                printable_path(final_.parent_path()) + ": there is no such directory; create it first");
  }
  check_final();
  claim();
  if (!options.keep_leftovers) start_over();
}

void Destination::check_final() const {
  if (kind_ == Kind::kFile) return check_final_file();
  const fs::file_status status = fs::symlink_status(final_);
  if (!fs::exists(status)) return;
  const std::string name = printable_path(final_);
  if (!fs::is_directory(status))
    throw Error(ErrorCode::kAlreadyExists, name + ": exists and is not a directory; give another name");
  if (!overwrite_)
    throw Error(ErrorCode::kAlreadyExists, name + ": exists already; " + Option::kOverwrite + " replaces it");
  if (!is_replaceable(final_)) {
    throw Error(ErrorCode::kAlreadyExists,
                name + ": holds files that are no checkpoint; it is not overwritten, delete it yourself");
  }
}

void Destination::check_final_file() const {
  const fs::file_status status = fs::symlink_status(final_);
  if (!fs::exists(status)) return;
  const std::string name = printable_path(final_);
  if (fs::is_directory(final_)) throw Error(ErrorCode::kInvalidArgument, name + ": is a folder; name a file");
  if (!fs::is_regular_file(status) && !fs::is_symlink(status))
    throw Error(ErrorCode::kAlreadyExists, name + ": exists and is not a file; give another name");
  if (!overwrite_)
    throw Error(ErrorCode::kAlreadyExists, name + ": exists already; " + Option::kOverwrite + " replaces it");
}

void Destination::check_work() const {
  if (!fs::exists(fs::symlink_status(work_)) || is_ours(work_, kind_)) return;
  throw Error(ErrorCode::kAlreadyExists,
              printable_path(work_) + ": is in the way and not of halfbyte; move it, or give another name");
}

// Whoever holds the lock may be done, and remove the directory, at any moment before it is ours.
void Destination::lock_work() {
  const auto fail = [&] {
    throw Error(ErrorCode::kAlreadyExists, printable_path(work_) + ": another process was writing here just now");
  };
  try {
    check_work();
    fs::create_directory(work_);
    lock_ = std::make_unique<files::DirectoryLock>(work_);
  } catch (const fs::filesystem_error& error) {
    if (error.code() != std::errc::no_such_file_or_directory) throw;
    fail();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    fail();
  }
}

void Destination::claim() {
  lock_work();
  try {
    check_final();  // whoever held the lock before may have finished
    check_work();   // and somebody may have put something there
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove(work_, ignored);  // unless something is in it
    throw;
  }
  // A link in its place would have what it names emptied and written to.
  const fs::file_status inner = fs::symlink_status(partial_);
  if (fs::exists(inner) && !fs::is_directory(inner)) fs::remove(partial_);
  had_leftovers_ = !fs::is_empty(work_);
  if (had_leftovers_) return keep();
  make_inner();
}

void Destination::make_inner() const {
  if (kind_ == Kind::kDirectory) fs::create_directory(partial_);
}

void Destination::start_over() {
  for (const fs::directory_entry& entry : fs::directory_iterator(work_)) fs::remove_all(entry.path());
  make_inner();
  is_kept_ = false;
}

void Destination::remove_all_but(const std::vector<fs::path>& wanted) {
  fs::create_directory(partial_);
  for (const fs::directory_entry& entry : fs::directory_iterator(partial_)) {
    const bool is_wanted = std::ranges::count(wanted, entry.path().filename()) > 0;
    const bool is_ours = fs::is_regular_file(entry.symlink_status()) && entry.hard_link_count() == 1;
    if (!is_wanted || !is_ours) fs::remove_all(entry.path());
  }
}

Destination::~Destination() {
  std::error_code ignored;
  if (!is_committed_ && !is_kept_) fs::remove_all(work_, ignored);
}

void Destination::check_space(std::uint64_t needed_bytes) const {
  const std::uint64_t free = files::free_bytes(work_) + reserved_bytes(partial_);
  if (free >= needed_bytes) return;
  throw Error(ErrorCode::kNoResources, printable_path(final_) + ": needs " + files::printable_bytes(needed_bytes) +
                                           ", the disk has " + files::printable_bytes(free) +
                                           " free; make room or write elsewhere");
}

void Destination::write_file(const fs::path& name, std::string_view text) const {
  files::OutputFile file(partial_ / name, text.size());
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
}

files::FileRecord Destination::copy_file(const fs::path& from) const {
  const files::InputFile source(from);
  files::OutputFile copy(partial_ / from.filename(), source.size_bytes());
  files::Hash128 hash;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < source.size_bytes(); at += block.size()) {
    block.resize(std::min(kCopyBlockBytes, source.size_bytes() - at));
    source.read(at, block);
    copy.write(at, block);
    hash.update(block);
  }
  copy.sync();
  return {from.filename().string(), source.size_bytes(), source.size_bytes(), hash.hex()};
}

Error Destination::with_outlook(const Error& error) const {
  Text outlook;
  if (is_kept_) {
    outlook = "; " + printable_path(work_) + " is kept, the same command with " + Option::kResume + " goes on";
  } else if (error.code() == ErrorCode::kInterrupted) {
    outlook = "; what was written has been removed";
  }
  return Error(error.code(), error.text() + outlook);
}

void Destination::fill(const std::function<void()>& work) {
  try {
    work();
    read_back(partial_, final_);
    commit();
  } catch (const Error& error) {
    throw with_outlook(error);
  }
}

void Destination::commit() {
  if (kind_ == Kind::kDirectory) files::sync_directory(partial_);
  check_final();  // something may have come in the meantime
  if (fs::exists(fs::symlink_status(final_))) {
    files::exchange(partial_, final_);
  } else {
    files::rename_new(partial_, final_);
  }
  is_committed_ = true;
  files::sync_directory(final_.parent_path());
  files::sync_directory(work_);
  std::error_code ignored;  // the result stands; leftovers go with the next run
  fs::remove_all(work_, ignored);
}

}  // namespace halfbyte::convert

#include "convert/output/destination.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <vector>

#include <halfbyte/error.h>

#include "convert/output/journal.h"
#include "convert/output/read_back.h"
#include "convert/output/work_parts.h"
#include "loader/files/file_tree.h"
#include "loader/files/hash.h"
#include "loader/files/manifest.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

constexpr std::uint64_t kCopyBlockBytes = std::uint64_t{1} << 20;

using files::printable_path;

constexpr const char* kInner = "checkpoint";
constexpr const char* kDeleteItYourself = "; it is no longer needed, delete it yourself";
constexpr const char* kCalibration = "calibration";
constexpr const char* kTraining = "training";
constexpr const char* kInWork[] = {kInner, kCalibration, kTraining, "journal", kPartsLock};

bool is_of_work(const fs::path& name) {
  return std::ranges::find(kInWork, name) != std::end(kInWork) || part_of_folder(name);
}

// What may be overwritten: an empty directory or a checkpoint, never somebody's other files.
bool is_replaceable(const fs::path& directory) {
  const std::vector<fs::path> inside = files::entries(directory);
  return inside.empty() || std::ranges::any_of(inside, [](const fs::path& path) {
           return path.filename() == files::kManifestFile || path.extension() == ".safetensors";
         });
}

// Whether a NAME.partial was made here, and may be taken over.
bool is_ours(const fs::path& work, Destination::Kind kind) {
  if (files::type_of(work) != fs::file_type::directory) return false;
  const bool has_others =
      std::ranges::any_of(files::entries(work), [](const fs::path& path) { return !is_of_work(path.filename()); });
  return !has_others || (kind == Destination::Kind::kDirectory && is_replaceable(work));
}

std::uint64_t regular_size(const fs::path& path) { return files::is_regular_file(path) ? files::file_size(path) : 0; }

std::uint64_t reserved_bytes(const fs::path& path) {
  if (!files::is_directory(path)) return regular_size(path);
  std::uint64_t out = 0;
  for (const fs::path& inside : files::entries(path)) out += regular_size(inside);
  return out;
}

}  // namespace

fs::path destination_path(const fs::path& path) {
  fs::path out = files::absolute(path);
  if (out.has_relative_path() && !out.has_filename()) out = out.parent_path();
  if (out.has_filename()) return out;
  throw Error(ErrorCode::kInvalidArgument, printable_path(path) + ": this is no name for something new");
}

fs::path Destination::calibration_path() const { return work_ / kCalibration; }

fs::path Destination::training_path() const { return convert::training_path(final_); }

fs::path training_path(const fs::path& destination) { return work_path(destination) / kTraining; }

fs::path work_path(const fs::path& destination) { return destination.string() + ".partial"; }

Text remove_leftovers(const fs::path& destination) {
  const fs::path work = work_path(destination);
  try {
    if (!is_ours(work, Destination::Kind::kDirectory)) return {};
    const files::DirectoryLock lock(work);
    files::remove_tree(work);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kAlreadyExists && error.code() != ErrorCode::kNotFound)  // else somebody works there
      return error.text() + kDeleteItYourself;
  }
  return {};
}

void check_apart(const fs::path& source, const fs::path& destination) {
  const fs::path from = files::resolved(source);
  const fs::path to = files::resolved(destination), work = files::resolved(work_path(destination_path(destination)));
  const auto is_apart = [&](const fs::path& other) {
    return !files::is_inside(from, other) && !files::is_inside(other, from);
  };
  if (is_apart(to) && is_apart(work)) return;
  throw Error(ErrorCode::kInvalidArgument, printable_path(destination) + " and the source " + printable_path(source) +
                                               " lie within each other; give a destination elsewhere");
}

Destination::Destination(const fs::path& path, Options options)
    : final_(destination_path(path)),
      work_(convert::work_path(final_)),
      partial_(work_ / kInner),
      overwrite_(options.overwrite),
      kind_(options.kind),
      is_shared_(options.is_shared) {
  if (!files::is_directory(final_.parent_path())) {
    throw Error(ErrorCode::kNotFound,
                printable_path(final_.parent_path()) + ": there is no such directory; create it first");
  }
  check_final();
  claim();
  if (!options.keep_leftovers) start_over_instead_of({});
}

void Destination::check_final() const {
  if (kind_ == Kind::kFile) return check_final_file();
  const fs::file_type type = files::type_of(final_);
  if (type == fs::file_type::not_found) return;
  const std::string name = printable_path(final_);
  if (type != fs::file_type::directory)
    throw Error(ErrorCode::kAlreadyExists, name + ": exists and is not a directory; give another name");
  if (!overwrite_)
    throw Error(ErrorCode::kAlreadyExists, name + ": exists already; " + Option::kOverwrite + " replaces it");
  if (!is_replaceable(final_)) {
    throw Error(ErrorCode::kAlreadyExists,
                name + ": holds files that are no checkpoint; it is not overwritten, delete it yourself");
  }
}

void Destination::check_final_file() const {
  const fs::file_type type = files::type_of(final_);
  if (type == fs::file_type::not_found) return;
  const std::string name = printable_path(final_);
  if (files::is_directory(final_)) throw Error(ErrorCode::kInvalidArgument, name + ": is a folder; name a file");
  if (type != fs::file_type::regular && type != fs::file_type::symlink)
    throw Error(ErrorCode::kAlreadyExists, name + ": exists and is not a file; give another name");
  if (!overwrite_)
    throw Error(ErrorCode::kAlreadyExists, name + ": exists already; " + Option::kOverwrite + " replaces it");
}

void Destination::check_work() const {
  if (files::type_of(work_) == fs::file_type::not_found || is_ours(work_, kind_)) return;
  throw Error(ErrorCode::kAlreadyExists,
              printable_path(work_) + ": is in the way and not of halfbyte; move it, or give another name");
}

// Whoever holds the lock may be done, and remove the directory, at any moment before it is ours.
void Destination::lock_work() {
  bool is_made = false;
  const auto unless_gone = [&](const auto& step) {
    try {
      step();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound)
        throw Error(ErrorCode::kAlreadyExists, printable_path(work_) + ": another process was writing here just now");
      if (is_made && error.code() != ErrorCode::kAlreadyExists) remove_if_empty();
      throw;
    }
  };
  unless_gone([&] { check_work(); });
  is_made = files::make_directory(work_);
  unless_gone([&] { lock_all(); });
}

void Destination::claim() {
  lock_work();
  try {
    check_final();  // whoever held the lock before may have finished
    check_work();   // and somebody may have put something there
    // A link in its place would have what it names emptied and written to.
    const fs::file_type inner = files::type_of(partial_);
    if (inner != fs::file_type::not_found && inner != fs::file_type::directory) files::remove_tree(partial_);
    had_leftovers_ = !files::entries(work_).empty();
    if (had_leftovers_ || is_shared_) keep();
    if (!had_leftovers_ || is_shared_) make_inner();
  } catch (const Error&) {
    remove_if_empty();
    throw;
  }
}

void Destination::lock_all() {
  using enum files::DirectoryLock::Sharing;
  const auto sharing = is_shared_ ? kShared : kSole;
  file_lock_.reset();
  lock_.reset();
  lock_ = std::make_unique<files::DirectoryLock>(work_, sharing);
  if (is_shared_ || files::is_regular_file(work_ / kPartsLock))
    file_lock_ = files::DirectoryLock::of_file(work_ / kPartsLock, sharing);
}

bool Destination::take_over() try {
  is_shared_ = false;
  lock_all();
  return true;
} catch (const Error& error) {
  is_shared_ = true;
  if (error.code() == ErrorCode::kAlreadyExists || error.code() == ErrorCode::kNotFound) return false;
  throw;
}

void Destination::remove_if_empty() const noexcept {
  std::error_code ignored;
  fs::remove(work_, ignored);
}

void Destination::make_inner() const {
  if (kind_ == Kind::kDirectory) files::make_directory(partial_);
}

void Destination::start_over() {
  for (const fs::path& path : files::entries(work_)) files::remove_tree(path);
  make_inner();
  is_kept_ = false;
}

void Destination::start_over_instead_of(const std::string& difference) {
  const auto journal = read_journals(work_);
  start_over();
  const std::string progress = journal ? journal->progress() : "";
  if (progress.empty()) return;
  warnings_.push_back(printable_path(work_) + " held the beginning of another conversion, " + progress +
                      (difference.empty() ? "" : " (" + difference + ")") + ", which was deleted");
}

void Destination::remove_all_but(const std::vector<fs::path>& wanted) {
  files::make_directory(partial_);
  for (const fs::path& path : files::entries(partial_)) {
    const bool is_wanted = std::ranges::count(wanted, path.filename()) > 0;
    if (!is_wanted || !files::is_sole_regular_file(path)) files::remove_tree(path);
  }
}

Destination::~Destination() {
  if (!is_committed_ && !is_kept_) static_cast<void>(remove_work());
}

// What could not be removed, and why; empty: nothing is left. One folder is open at a time: there may be no more left
// to open than that.
Text Destination::remove_work() const try {
  for (const fs::path& path : files::entries(work_)) files::remove_tree(path);
  files::remove_tree(work_);
  return {};
} catch (const Error& error) {
  return error.text();
}

void Destination::check_space(std::uint64_t needed_bytes) const {
  std::uint64_t free = files::free_bytes(work_) + reserved_bytes(partial_) + reserved_bytes(calibration_path());
  if (is_shared_) {
    for (const WorkPart& part : parts_begun(work_)) free += reserved_bytes(part_folder(work_, part) / kPartCalibration);
  }
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

Text Destination::outlook(ErrorCode code) {
  if (is_shared_) return "; " + printable_path(work_) + " is kept, the same command goes on";
  if (is_kept_) return "; " + printable_path(work_) + " is kept, the same command with " + Option::kResume + " goes on";
  is_kept_ = true;  // it is removed here, where it can be said that it is not
  const Text left = remove_work();
  if (!left.empty()) return "; what was written is still there: " + left + kDeleteItYourself;
  return code == ErrorCode::kInterrupted ? "; what was written has been removed" : "";
}

Error Destination::with_outlook(const Error& error) {
  if (is_committed_) return error;
  Text said = error.text() + outlook(error.code());
  for (const Text& warning : warnings_) said += "; " + warning;
  return Error(error.code(), said);
}

void Destination::fill(const std::function<void()>& work) {
  write([&] {
    work();
    read_back(partial_, final_);
    commit();
  });
}

void Destination::write(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    throw with_outlook(error);
  } catch (const std::bad_alloc&) {
    throw with_outlook(Error(ErrorCode::kNoResources, "out of memory while writing " + printable_path(final_)));
  }
}

void Destination::commit() {
  if (kind_ == Kind::kDirectory) files::sync_directory(partial_);
  check_final();  // something may have come in the meantime
  fs::path replaced;
  if (files::type_of(final_) != fs::file_type::not_found) {
    replaced = files::exchange(partial_, final_);
  } else {
    files::rename_new(partial_, final_);
  }
  is_committed_ = true;
  sync_names(replaced);
  remove_the_rest(replaced);
}

// The result has its name; whether the name outlasts a power failure is all that can go wrong.
void Destination::sync_names(const fs::path& replaced) const try {
  files::sync_directory(final_.parent_path());
  files::sync_directory(work_);
} catch (const Error& error) {
  Text said = printable_path(final_) + " is complete, but " + error.text() +
              ": a power failure may undo its renaming until the system has written that (`sync`)";
  if (!replaced.empty()) said += "; what it replaced is kept in " + printable_path(replaced);
  if (is_kept_) said += "; the same command tries again";
  throw Error(error.code(), said);
}

void Destination::remove_the_rest(const fs::path& replaced) {
  Text left = remove_work();
  try {
    if (!replaced.empty()) files::remove_tree(replaced);
  } catch (const Error& error) {
    left = error.text();
  }
  if (!left.empty()) warnings_.push_back(left + kDeleteItYourself);
}

}  // namespace halfbyte::convert

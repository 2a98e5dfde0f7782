// The operating system, as Linux and other POSIX systems have it.
#include "loader/files/platform.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/magic.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include <halfbyte/error.h>

#include "loader/files/file_tree.h"
#include "loader/files/mappings.h"
#include "loader/files/printable.h"
#include "loader/files/system_error.h"

namespace halfbyte::files {
namespace {

// One call moves at most 2 GiB on Linux; smaller pieces also let other threads in.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 26;

[[noreturn]] void fail(const fs::path& path, const char* doing, int error_number = errno) {
  fail_on(path, doing, error_number);
}

// What `call` returns, made again as long as a signal interrupts it.
template <class Call>
auto uninterrupted(const Call& call) {
  auto out = call();
  while (out < 0 && errno == EINTR) out = call();
  return out;
}

int open_or_fail(const fs::path& path, int flags, mode_t mode = 0) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (descriptor < 0) fail(path, "opening");
  return descriptor;
}

// Closes on every way out of a constructor that throws.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  int release() noexcept { return std::exchange(value, -1); }
};

std::uint64_t regular_file_size(int descriptor, const fs::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail(path, "reading the size");
  if (!S_ISREG(status.st_mode)) throw Error(ErrorCode::kIo, printable_path(path) + ": not a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

void read_fully(int descriptor, const fs::path& path, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const std::size_t wanted = std::min(out.size(), kMaxTransfer);
    const ssize_t got =
        uninterrupted([&] { return ::pread(descriptor, out.data(), wanted, static_cast<off_t>(offset)); });
    if (got < 0) fail(path, "reading");
    if (got == 0) {
      throw Error(ErrorCode::kCorrupt, printable_path(path) + ": the file ends at byte " + std::to_string(offset) +
                                           ", " + std::to_string(out.size()) + " more were wanted; copy it again");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

// The process that holds the lock on an open file: " (pid 123)", or nothing where the system does not say.
std::string holder_of([[maybe_unused]] int descriptor) {
#ifdef __linux__
  struct stat status {};
  std::ifstream locks("/proc/locks");
  if (!locks || ::fstat(descriptor, &status) != 0) return {};
  char place[64];
  std::snprintf(place, sizeof place, "%02x:%02x:%lu", major(status.st_dev), minor(status.st_dev),
                static_cast<unsigned long>(status.st_ino));
  // "1: FLOCK  ADVISORY  WRITE 123 fe:00:456 0 EOF"; one that waits has "->" behind the number.
  std::string number, kind, advisory, access, pid, file, rest;
  while (locks >> number >> kind >> advisory >> access >> pid >> file && std::getline(locks, rest)) {
    if (kind == "FLOCK" && file == place) return " (pid " + pid + ")";
  }
#endif
  return {};
}

}  // namespace

InputFile::InputFile(const fs::path& path) : path_(path) {
  Descriptor descriptor{open_or_fail(path, O_RDONLY | O_NONBLOCK)};  // a pipe must not make us wait
  size_bytes_ = regular_file_size(descriptor.value, path);
  descriptor_ = descriptor.release();
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  read_fully(descriptor_, path_, offset, out);
}

void InputFile::drop_cache_behind(std::uint64_t offset, std::uint64_t size) const noexcept {
  static_cast<void>(
      ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED));
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  Descriptor descriptor{open_or_fail(path, O_RDONLY)};
  const std::uint64_t size = regular_file_size(descriptor.value, path);
  if (size == 0) return;
  // NORESERVE: pages that nobody writes to must not count against the commit limit.
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor.value, 0);
  if (address == MAP_FAILED) fail(path, "mapping");
  bytes_ = {static_cast<std::byte*>(address), size};
  remember_mapping(path_, bytes_);
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget_mapping(bytes_);
  ::munmap(bytes_.data(), bytes_.size());
}

void MappedFile::read_ahead() const noexcept {
  const bool fits = bytes_.size() < memory_bytes() / 2;  // else the end would push out the beginning
  if (!fits || bytes_.empty()) return;
#ifdef MADV_HUGEPAGE
  static_cast<void>(::madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE));
#endif
  static_cast<void>(::madvise(bytes_.data(), bytes_.size(), MADV_WILLNEED));
}

void let_go(const void* memory, std::uint64_t size) noexcept {
  if (size == 0 || !mapping_at(memory).path) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(memory) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(memory) + size;
  static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED));
}

// The system takes small pages for a file that is written in pieces, and huge ones for what a mapping that wants them
// reads: of what is reserved, zeros, without the disk. Elsewhere that would ask the disk or the network.
#ifdef MADV_POPULATE_READ
namespace {

constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;

bool can_have_huge_pages(int descriptor) noexcept {
  struct statfs system {};
  return ::fstatfs(descriptor, &system) == 0 && (system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC);
}

}  // namespace

void OutputFile::make_huge_pages(std::uint64_t offset, std::uint64_t size) noexcept {
  const std::uint64_t end = std::min<std::uint64_t>((offset + size + kHugePage - 1) / kHugePage, has_huge_page_.size());
  for (std::uint64_t place = offset / kHugePage; place < end; ++place) {
    if (has_huge_page_[place].exchange(true)) continue;
    void* const address =
        ::mmap(nullptr, kHugePage, PROT_READ, MAP_SHARED, descriptor_, static_cast<off_t>(place * kHugePage));
    if (address == MAP_FAILED) continue;
    static_cast<void>(::madvise(address, kHugePage, MADV_HUGEPAGE));
    static_cast<void>(::madvise(address, kHugePage, MADV_POPULATE_READ));
    ::munmap(address, kHugePage);
  }
}
#else
void OutputFile::make_huge_pages(std::uint64_t, std::uint64_t) noexcept {}
#endif

OutputFile::OutputFile(const fs::path& path, std::uint64_t size_bytes, Existing existing) : path_(path) {
  const int flags = existing == Existing::kRefuse ? O_EXCL : O_NOFOLLOW;
  Descriptor descriptor{open_or_fail(path, O_RDWR | O_CREAT | flags, 0666)};
  const auto size = static_cast<off_t>(size_bytes);
#ifdef __linux__
  // Not posix_fallocate, which writes every block itself where the file system cannot reserve.
  const auto reserve = [&] { return ::fallocate(descriptor.value, 0, 0, size); };
  if (size > 0 && uninterrupted(reserve) != 0 && code_of(errno) == ErrorCode::kNoResources) {
    fail(path, "reserving space");
  }
#endif
  if (uninterrupted([&] { return ::ftruncate(descriptor.value, size); }) != 0) fail(path, "setting the size");
#ifdef MADV_POPULATE_READ
  if (can_have_huge_pages(descriptor.value)) has_huge_page_ = std::vector<std::atomic<bool>>(size_bytes / kHugePage);
#endif
  descriptor_ = descriptor.release();
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  make_huge_pages(offset, bytes.size());
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kMaxTransfer);
    const ssize_t put =
        uninterrupted([&] { return ::pwrite(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset)); });
    if (put < 0) fail(path_, "writing");
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void OutputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  read_fully(descriptor_, path_, offset, out);
}

// Starts what sync() would have to wait for; errors are left to that.
void OutputFile::start_writing([[maybe_unused]] std::uint64_t offset,
                               [[maybe_unused]] std::uint64_t size) const noexcept {
#ifdef __linux__
  static_cast<void>(
      ::sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE));
#endif
}

void OutputFile::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail(path_, "syncing");
}

// Not again when it was interrupted: the descriptor is gone then.
void OutputFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail(path_, "closing");
}

DirectoryLock::DirectoryLock(const fs::path& directory, Sharing sharing) {
  claim(directory, O_RDONLY | O_DIRECTORY, sharing);
}

std::unique_ptr<DirectoryLock> DirectoryLock::of_file(const fs::path& file, Sharing sharing) {
  std::unique_ptr<DirectoryLock> out(new DirectoryLock());
  out->claim(file, O_RDWR | O_CREAT | O_NOFOLLOW, sharing);
  return out;
}

void DirectoryLock::claim(const fs::path& directory, int flags, Sharing sharing) {
  Descriptor descriptor{open_or_fail(directory, flags, 0666)};
  const int kind = sharing == Sharing::kSole ? LOCK_EX : LOCK_SH;
  if (uninterrupted([&] { return ::flock(descriptor.value, kind | LOCK_NB); }) != 0) {
    if (errno != EWOULDBLOCK) fail(directory, "locking");
    throw Error(ErrorCode::kAlreadyExists, printable_path(directory) + ": another process" +
                                               holder_of(descriptor.value) + " is writing here; wait for it");
  }
  // The holder before us may have renamed the directory between our open and our lock.
  struct stat locked {};
  struct stat named {};
  const bool is_same = ::fstat(descriptor.value, &locked) == 0 && ::stat(directory.c_str(), &named) == 0 &&
                       locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
  if (!is_same)
    throw Error(ErrorCode::kAlreadyExists, printable_path(directory) + ": another process was writing here just now");
  descriptor_ = descriptor.release();
}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TemporaryDirectory::TemporaryDirectory() {
  std::error_code error;
  std::string name = (fs::temp_directory_path(error) / "halfbyte-XXXXXX").string();
  if (!::mkdtemp(name.data())) fail(name, "making a folder there");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::uint64_t free_bytes(const fs::path& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) fail(directory, "asking for free space");
  return std::uint64_t{status.f_bavail} * std::uint64_t{status.f_frsize};
}

void sync_directory(const fs::path& directory) {
  const Descriptor descriptor{open_or_fail(directory, O_RDONLY | O_DIRECTORY)};
  // EINVAL: a file system without directory syncing; there is nothing more to do then.
  const int status = uninterrupted([&] { return ::fsync(descriptor.value); });
  if (status != 0 && errno != EINVAL) fail(directory, "syncing");
}

void rename_new(const fs::path& from, const fs::path& to) {
#ifdef RENAME_NOREPLACE
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) fail(to, "renaming the finished result to this name");
#endif
  if (type_of(to) != fs::file_type::not_found) fail(to, "renaming the finished result to this name", EEXIST);
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "renaming the finished result to this name");
}

fs::path exchange(const fs::path& from, const fs::path& to) {
#ifdef RENAME_EXCHANGE
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return from;
  if (errno != EINVAL && errno != ENOSYS) fail(to, "exchanging with the finished result");
#endif
  const fs::path aside = to.string() + ".old";
  rename_new(to, aside);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error_number = errno;
    static_cast<void>(::rename(aside.c_str(), to.c_str()));
    fail(to, "renaming the finished result to this name", error_number);
  }
  return ::rename(aside.c_str(), from.c_str()) == 0 ? from : aside;
}

std::uint64_t memory_bytes() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : 0;
}

std::uint64_t peak_rss_bytes() noexcept {
  struct rusage usage {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // Linux counts KiB
}

std::uint64_t current_rss_bytes() noexcept {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (!file) return 0;
  unsigned long total = 0;
  unsigned long resident = 0;
  const int fields = std::fscanf(file, "%lu %lu", &total, &resident);
  std::fclose(file);
  return fields == 2 ? std::uint64_t{resident} * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace halfbyte::files

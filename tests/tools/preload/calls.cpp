// Every call on files that halfbyte, and the C++ library for it, make: each is counted, and does as its orders say.
// Loaded before the C library (LD_PRELOAD), for crash_test.py, race_test.py, fault_test.py and power_test.py.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "tests/tools/preload/orders.h"
#include "tests/tools/preload/recording.h"

using preload::Call;
using preload::Effect;
using preload::is_recording;
using preload::path_of;
using preload::real;
using preload::record;

namespace {

bool exists(const std::string& path) {
  struct stat ignored {};
  return real<int(int, const char*, struct stat*, int)>("fstatat")(AT_FDCWD, path.c_str(), &ignored,
                                                                   AT_SYMLINK_NOFOLLOW) == 0;
}

void record_data(int fd, off_t at, const void* data, ssize_t size) {
  if (size > 0 && is_recording())
    preload::record_write(path_of(fd), static_cast<std::uint64_t>(at),
                          {static_cast<const unsigned char*>(data), static_cast<std::size_t>(size)});
}

// A reservation makes a file longer and never shorter.
void record_reservation(int fd, off_t end) {
  struct stat status {};
  if (is_recording() && real<int(int, struct stat*)>("fstat")(fd, &status) == 0 && status.st_size == end)
    record("truncate", path_of(fd), std::to_string(end));
}

template <class Make>
int open_recorded(const std::string& path, int flags, const Make& make) {
  const bool is_new = is_recording() && (flags & O_CREAT) != 0 && !exists(path);
  const int out = make();
  if (out >= 0 && is_new) record("create", path);
  if (out >= 0 && !is_new && (flags & O_TRUNC) != 0) record("truncate", path, "0");
  return out;
}

void record_rename(const std::string& from, const std::string& to, unsigned flags) {
  record((flags & RENAME_EXCHANGE) != 0 ? "exchange" : "rename", from, to);
}

}  // namespace

// A call that fails with `failed`; its subject is what path_of() takes; `after` looks at its result `out`.
#define HALFBYTE_CALL(effect, type, failed, name, parameters, arguments, subject, after) \
  type name parameters {                                                                 \
    static const auto call = real<type parameters>(#name);                               \
    const Call counted subject;                                                          \
    if (counted.fails()) return failed;                                                  \
    const auto out = call arguments;                                                     \
    after;                                                                               \
    return out;                                                                          \
  }
#define HALFBYTE_LOOKS(type, failed, name, parameters, arguments, ...)                                   \
  HALFBYTE_CALL(kLooks, type, failed, name, parameters, arguments, (#name, Effect::kLooks, __VA_ARGS__), \
                static_cast<void>(0))
#define HALFBYTE_CHANGES(name, parameters, arguments, after, ...)                                       \
  HALFBYTE_CALL(kChanges, int, -1, name, parameters, arguments, (#name, Effect::kChanges, __VA_ARGS__), \
                if (out == 0) after)

extern "C" {

// Looking.
HALFBYTE_LOOKS(ssize_t, -1, read, (int fd, void* data, std::size_t size), (fd, data, counted.part(size)), fd)
HALFBYTE_LOOKS(ssize_t, -1, pread, (int fd, void* data, std::size_t size, off_t at), (fd, data, counted.part(size), at),
               fd)
HALFBYTE_LOOKS(ssize_t, -1, pread64, (int fd, void* data, std::size_t size, off64_t at),
               (fd, data, counted.part(size), at), fd)
HALFBYTE_LOOKS(int, -1, stat, (const char* path, struct stat* status), (path, status), path)
HALFBYTE_LOOKS(int, -1, lstat, (const char* path, struct stat* status), (path, status), path)
HALFBYTE_LOOKS(int, -1, fstat, (int fd, struct stat* status), (fd, status), fd)
HALFBYTE_LOOKS(int, -1, fstat64, (int fd, struct stat64* status), (fd, status), fd)
HALFBYTE_LOOKS(int, -1, fstatat, (int fd, const char* path, struct stat* status, int flags), (fd, path, status, flags),
               fd, path)
HALFBYTE_LOOKS(int, -1, statvfs, (const char* path, struct statvfs* status), (path, status), path)
HALFBYTE_LOOKS(int, -1, access, (const char* path, int mode), (path, mode), path)
HALFBYTE_LOOKS(ssize_t, -1, readlink, (const char* path, char* out_text, std::size_t size), (path, out_text, size),
               path)
HALFBYTE_LOOKS(char*, nullptr, realpath, (const char* path, char* resolved), (path, resolved), path)
HALFBYTE_LOOKS(DIR*, nullptr, opendir, (const char* path), (path), path)
HALFBYTE_LOOKS(DIR*, nullptr, fdopendir, (int fd), (fd), fd)
HALFBYTE_LOOKS(struct dirent*, nullptr, readdir, (DIR * directory), (directory), ::dirfd(directory))
HALFBYTE_LOOKS(int, -1, flock, (int fd, int operation), (fd, operation), fd)
HALFBYTE_LOOKS(std::FILE*, nullptr, fopen, (const char* path, const char* mode), (path, mode), path)
HALFBYTE_LOOKS(std::FILE*, nullptr, fopen64, (const char* path, const char* mode), (path, mode), path)

// Memory of no file is not counted: how often it is asked for is the allocator's affair.
void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t at) {
  static const auto call = real<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  if (fd < 0) return call(address, size, protection, flags, fd, at);
  const Call counted("mmap", Effect::kLooks, fd);
  return counted.fails() ? MAP_FAILED : call(address, size, protection, flags, fd, at);
}

// Changing.
HALFBYTE_CALL(kChanges, ssize_t, -1, write, (int fd, const void* data, std::size_t size),
              (fd, data, counted.part(size)), ("write", Effect::kChanges, fd),
              record_data(fd, ::lseek(fd, 0, SEEK_CUR) - out, data, out))
HALFBYTE_CALL(kChanges, ssize_t, -1, pwrite, (int fd, const void* data, std::size_t size, off_t at),
              (fd, data, counted.part(size), at), ("pwrite", Effect::kChanges, fd), record_data(fd, at, data, out))
HALFBYTE_CALL(kChanges, ssize_t, -1, pwrite64, (int fd, const void* data, std::size_t size, off64_t at),
              (fd, data, counted.part(size), at), ("pwrite64", Effect::kChanges, fd), record_data(fd, at, data, out))
HALFBYTE_CHANGES(fsync, (int fd), (fd), record("sync", path_of(fd)), fd)
HALFBYTE_CHANGES(fdatasync, (int fd), (fd), record("sync", path_of(fd)), fd)
HALFBYTE_CHANGES(ftruncate, (int fd, off_t size), (fd, size), record("truncate", path_of(fd), std::to_string(size)), fd)
HALFBYTE_CHANGES(ftruncate64, (int fd, off64_t size), (fd, size), record("truncate", path_of(fd), std::to_string(size)),
                 fd)
HALFBYTE_CHANGES(fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size),
                 record_reservation(fd, at + size), fd)
HALFBYTE_CHANGES(fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size),
                 record_reservation(fd, at + size), fd)
HALFBYTE_CHANGES(rename, (const char* from, const char* to), (from, to), record_rename(path_of(from), path_of(to), 0),
                 from)
HALFBYTE_CHANGES(renameat, (int from_fd, const char* from, int to_fd, const char* to), (from_fd, from, to_fd, to),
                 record_rename(path_of(from_fd, from), path_of(to_fd, to), 0), from_fd, from)
HALFBYTE_CHANGES(renameat2, (int from_fd, const char* from, int to_fd, const char* to, unsigned flags),
                 (from_fd, from, to_fd, to, flags), record_rename(path_of(from_fd, from), path_of(to_fd, to), flags),
                 from_fd, from)
HALFBYTE_CHANGES(link, (const char* from, const char* to), (from, to), record("link", path_of(from), path_of(to)), from)
HALFBYTE_CHANGES(mkdir, (const char* path, mode_t mode), (path, mode), record("mkdir", path_of(path)), path)
HALFBYTE_CHANGES(mkdirat, (int fd, const char* path, mode_t mode), (fd, path, mode), record("mkdir", path_of(fd, path)),
                 fd, path)
HALFBYTE_CHANGES(rmdir, (const char* path), (path), record("remove", path_of(path)), path)
HALFBYTE_CHANGES(unlink, (const char* path), (path), record("remove", path_of(path)), path)
HALFBYTE_CHANGES(unlinkat, (int fd, const char* path, int flags), (fd, path, flags),
                 record("remove", path_of(fd, path)), fd, path)
HALFBYTE_CHANGES(remove, (const char* path), (path), record("remove", path_of(path)), path)

char* mkdtemp(char* pattern) {
  static const auto call = real<char*(char*)>("mkdtemp");
  const Call counted("mkdtemp", Effect::kLooks,
                     const_cast<const char*>(pattern));  // elsewhere: what it makes is no result
  return counted.fails() ? nullptr : call(pattern);
}

// Opening changes files where it makes one. The mode is only read where there is one.
#define HALFBYTE_OPEN(name)                                                                                    \
  int name(const char* path, int flags, ...) {                                                                 \
    static const auto call = real<int(const char*, int, ...)>(#name);                                          \
    va_list rest;                                                                                              \
    va_start(rest, flags);                                                                                     \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;                                     \
    va_end(rest);                                                                                              \
    const Call counted(#name, (flags & O_CREAT) != 0 ? Effect::kChanges : Effect::kLooks, path);               \
    if (counted.fails()) return -1;                                                                            \
    return open_recorded(is_recording() ? path_of(path) : "", flags, [&] { return call(path, flags, mode); }); \
  }
HALFBYTE_OPEN(open)
HALFBYTE_OPEN(open64)

int openat(int fd, const char* path, int flags, ...) {
  static const auto call = real<int(int, const char*, int, ...)>("openat");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  const Call counted("openat", (flags & O_CREAT) != 0 ? Effect::kChanges : Effect::kLooks, fd, path);
  if (counted.fails()) return -1;
  return open_recorded(is_recording() ? path_of(fd, path) : "", flags, [&] { return call(fd, path, flags, mode); });
}

// Of the calls made by number, the renaming one.
long syscall(long number, ...) {
  static const auto call = real<long(long, ...)>("syscall");
  va_list rest;
  va_start(rest, number);
  long words[6];
  for (long& word : words) word = va_arg(rest, long);
  va_end(rest);
  const auto make = [&] { return call(number, words[0], words[1], words[2], words[3], words[4], words[5]); };
  if (number != SYS_renameat2) return make();
  const Call counted("syscall(renameat2)", Effect::kChanges, reinterpret_cast<const char*>(words[1]));
  if (counted.fails()) return -1;
  const long out = make();
  if (out == 0)
    record_rename(path_of(static_cast<int>(words[0]), reinterpret_cast<const char*>(words[1])),
                  path_of(static_cast<int>(words[2]), reinterpret_cast<const char*>(words[3])),
                  static_cast<unsigned>(words[4]));
  return out;
}

}  // extern "C"

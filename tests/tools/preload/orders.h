// What the preloaded library does at a call on files: it counts the call, and at a chosen one kills, stops or fails it.
//
// HALFBYTE_CRASH_AT=N and HALFBYTE_CRASH_WHEN=before|torn|after: the N-th call (from 1) that changes files is not made,
// or made, or, if it writes data, made for half the bytes; then the process ends as kill -9 ends it.
// HALFBYTE_CRASH_WHEN=stop: it stops before the call, and goes on with SIGCONT.
// HALFBYTE_CRASH_COUNT=FILE: the name of every call that changes files goes there, one a line.
//
// HALFBYTE_FAULT_AT=N and HALFBYTE_FAULT=5 (errno's number) or short: the N-th call of all, those that only look
// included, fails, or moves half the bytes; N=0: every call. HALFBYTE_FAULT_COUNT=FILE: every call's name and path.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <string>

namespace preload {

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

enum class Effect { kLooks, kChanges };

// What a call is about, as a path.
std::string path_of(const char* path);
std::string path_of(int descriptor);
std::string path_of(int directory, const char* path);

// One counted call: dies before it in the constructor, after it in the destructor.
class Call {
 public:
  template <class... Subject>
  Call(const char* name, Effect effect, Subject... subject) : Call(name, effect) {
    if (is_logged()) log_path(path_of(subject...).c_str());
  }
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // Whether it is not made but fails; errno says why.
  bool fails() const noexcept;
  // How many of so many bytes are to be moved.
  std::size_t part(std::size_t size) const noexcept;

 private:
  Call(const char* name, Effect effect);
  static bool is_logged();
  static void log_path(const char* path);

  bool is_killed_ = false;
  bool is_faulty_ = false;
};

}  // namespace preload

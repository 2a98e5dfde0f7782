// Opens a library of halfbyte's own that wraps one whose symbols clash with LibTorch's. Each sees its own symbols first
// (dlopen with RTLD_LOCAL | RTLD_DEEPBIND), which linking cannot give.
#pragma once

#include <string>

namespace halfbyte {

struct IsolatedLibrary {
  void* handle = nullptr;  // null: see why_not. Kept for the life of the process
  std::string path;
  std::string why_not;

  // Null when the library has no such function.
  void* symbol(const char* name) const;
};

// Looks beside this code and beside the program, in lib, ../lib and ../../lib of both, and where halfbyte was built or
// installed. The environment variable `variable` names another file; "off" or nothing in it: none.
IsolatedLibrary open_isolated(const char* file_name, const char* variable);

}  // namespace halfbyte

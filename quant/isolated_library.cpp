#include <halfbyte/isolated_library.h>

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define HALFBYTE_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HALFBYTE_ADDRESS_SANITIZER
#endif
#endif

#if defined(HALFBYTE_ADDRESS_SANITIZER)
// LeakSanitizer's tracer crashes at times on the thread-local storage of a library that was opened late, when the
// threads that used it are gone (GCC 12: about one run in six). This keeps it from following that storage.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {  // NOLINT: its name is given
  return "intercept_tls_get_addr=0";
}
#endif

namespace halfbyte {
namespace {

namespace fs = std::filesystem;

// AddressSanitizer forbids RTLD_DEEPBIND.
#if defined(HALFBYTE_ADDRESS_SANITIZER) || !defined(RTLD_DEEPBIND)
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kOpenFlags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

fs::path this_object() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&this_object), &info) || !info.dli_fname) return {};
  return info.dli_fname;
}

std::vector<fs::path> candidates(const char* file_name) {
  std::error_code ignored;
  std::vector<fs::path> paths;
  for (const fs::path& object : {this_object(), fs::path("/proc/self/exe")}) {
    const fs::path directory = fs::canonical(object, ignored).parent_path();
    if (directory.empty()) continue;
    paths.push_back(directory / file_name);
    paths.push_back(directory / "lib" / file_name);  // of a package for Python
    paths.push_back(directory.parent_path() / "lib" / file_name);
    paths.push_back(directory.parent_path().parent_path() / "lib" / file_name);  // of libexec/halfbyte
  }
  for (const char* directory : {HALFBYTE_BUILD_LIBDIR, HALFBYTE_INSTALL_LIBDIR})
    paths.push_back(fs::path(directory) / file_name);
  return paths;
}

void open(const fs::path& file, IsolatedLibrary& out) {
  out.path = file.string();
  out.handle = dlopen(file.c_str(), kOpenFlags);
  if (!out.handle) out.why_not = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
}

}  // namespace

void* IsolatedLibrary::symbol(const char* name) const { return handle ? dlsym(handle, name) : nullptr; }

IsolatedLibrary open_isolated(const char* file_name, const char* variable) {
  IsolatedLibrary out;
  const char* wanted = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
  if (wanted && (std::string(wanted).empty() || std::string(wanted) == "off")) {
    out.why_not = std::string(variable) + " switches it off";
    return out;
  }
  if (wanted) {
    open(wanted, out);
    return out;
  }
  std::error_code ignored;
  for (const fs::path& candidate : candidates(file_name)) {
    if (!fs::exists(candidate, ignored)) continue;
    open(candidate, out);
    return out;
  }
  out.why_not = std::string(file_name) + " is neither beside the program nor where it was built or installed; set " +
                variable + " to its path";
  return out;
}

}  // namespace halfbyte

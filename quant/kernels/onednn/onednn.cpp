// Finds, opens and calls libhalfbyte_onednn.
#include "quant/kernels/onednn/onednn.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "quant/kernels/onednn/shim.h"

#if defined(__SANITIZE_ADDRESS__)
#define HALFBYTE_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HALFBYTE_ADDRESS_SANITIZER
#endif
#endif

namespace halfbyte::quant::onednn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileName = "libhalfbyte_onednn.so";

// Its own symbols first: libtorch_cpu.so exports functions of another oneDNN under the same names. AddressSanitizer
// forbids that flag.
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

std::vector<fs::path> candidates() {
  std::error_code ignored;
  std::vector<fs::path> paths;
  for (const fs::path& object : {this_object(), fs::path("/proc/self/exe")}) {
    const fs::path directory = fs::canonical(object, ignored).parent_path();
    if (directory.empty()) continue;
    paths.push_back(directory / kFileName);
    paths.push_back(directory.parent_path() / "lib" / kFileName);
  }
  for (const char* directory : {HALFBYTE_BUILD_LIBDIR, HALFBYTE_INSTALL_LIBDIR})
    paths.push_back(fs::path(directory) / kFileName);
  return paths;
}

struct Library {
  HalfbyteOnednnMatmulFunction* matmul = nullptr;
  std::string path;
  std::string version;
  std::string built_against;
  std::string why_not;

  Library() {
    const char* wanted = std::getenv("HALFBYTE_ONEDNN");  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
    if (!wanted) {
      open_first(candidates());
    } else if (std::string(wanted).empty() || std::string(wanted) == "off") {
      why_not = "HALFBYTE_ONEDNN switches it off";
    } else {
      open(wanted);
    }
  }

 private:
  void open_first(const std::vector<fs::path>& paths) {
    std::error_code ignored;
    for (const fs::path& candidate : paths) {
      if (fs::exists(candidate, ignored)) return open(candidate);
    }
    why_not = std::string(kFileName) +
              " is neither beside the program nor where it was built or installed; set HALFBYTE_ONEDNN to its path";
  }

  // The handle is kept for the life of the process.
  void open(const fs::path& file) {
    void* handle = dlopen(file.c_str(), kOpenFlags);
    if (!handle) {
      why_not = dlerror();  // NOLINT(concurrency-mt-unsafe): glibc keeps one a thread
      return;
    }
    const auto abi = reinterpret_cast<HalfbyteOnednnAbiFunction*>(dlsym(handle, HALFBYTE_ONEDNN_ABI_OF));
    const auto version_of = reinterpret_cast<HalfbyteOnednnVersionFunction*>(dlsym(handle, HALFBYTE_ONEDNN_VERSION));
    const auto function = reinterpret_cast<HalfbyteOnednnMatmulFunction*>(dlsym(handle, HALFBYTE_ONEDNN_MATMUL));
    const auto headers_of =
        reinterpret_cast<HalfbyteOnednnVersionFunction*>(dlsym(handle, HALFBYTE_ONEDNN_BUILT_AGAINST));
    if (!abi || !version_of || !headers_of || !function || abi() != HALFBYTE_ONEDNN_ABI) {
      why_not = file.string() + " belongs to another version of halfbyte";
      return;
    }
    matmul = function;
    path = file.string();
    version = version_of();
    built_against = headers_of();
  }
};

const Library& library() {
  static const Library opened;
  return opened;
}

int shim_dtype(Dtype dtype) { return dtype == Dtype::kBfloat16 ? kHalfbyteOnednnBfloat16 : kHalfbyteOnednnFloat32; }

bool call(const Matmul& m, bool with_data) noexcept try {
  if (!library().matmul) return false;
  HalfbyteOnednnMatmul matmul{shim_dtype(m.dtype), m.m, m.n, m.k, nullptr, nullptr, nullptr};
  if (with_data) {
    matmul.input = m.input;
    matmul.weight = m.weight;
    matmul.output = m.output;
  }
  char error[256];
  return library().matmul(&matmul, error, sizeof error) == 0;
} catch (const std::exception&) {
  return false;
}

bool probe(Dtype dtype) { return prepare({dtype, 64, 64, 256, nullptr, nullptr, nullptr}); }

}  // namespace

bool available() { return library().matmul != nullptr; }
const std::string& path() { return library().path; }
const std::string& why_not() { return library().why_not; }
const std::string& version() { return library().version; }
const std::string& built_against() { return library().built_against; }

bool supports(Dtype dtype) {
  static const bool has_float32 = probe(Dtype::kFloat32), has_bfloat16 = probe(Dtype::kBfloat16);
  return (dtype == Dtype::kFloat32 && has_float32) || (dtype == Dtype::kBfloat16 && has_bfloat16);
}

bool prepare(const Matmul& matmul) noexcept { return call(matmul, false); }
bool run(const Matmul& matmul) noexcept { return call(matmul, true); }

}  // namespace halfbyte::quant::onednn

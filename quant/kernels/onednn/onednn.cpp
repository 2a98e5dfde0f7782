// Finds, opens and calls libhalfbyte_onednn.
#include "quant/kernels/onednn/onednn.h"

#include <exception>

#include <halfbyte/isolated_library.h>

#include "quant/kernels/onednn/shim.h"

namespace halfbyte::quant::onednn {
namespace {

struct Library {
  HalfbyteOnednnMatmulFunction* matmul = nullptr;
  std::string path;
  std::string version;
  std::string built_against;
  std::string why_not;

  // libtorch_cpu.so exports functions of another oneDNN under the same names.
  Library() {
    const IsolatedLibrary opened = open_isolated("libhalfbyte_onednn.so", "HALFBYTE_ONEDNN");
    why_not = opened.why_not;
    if (opened.handle) take(opened);
  }

 private:
  void take(const IsolatedLibrary& opened) {
    const auto abi = reinterpret_cast<HalfbyteOnednnAbiFunction*>(opened.symbol(HALFBYTE_ONEDNN_ABI_OF));
    const auto version_of = reinterpret_cast<HalfbyteOnednnVersionFunction*>(opened.symbol(HALFBYTE_ONEDNN_VERSION));
    const auto function = reinterpret_cast<HalfbyteOnednnMatmulFunction*>(opened.symbol(HALFBYTE_ONEDNN_MATMUL));
    const auto headers_of =
        reinterpret_cast<HalfbyteOnednnVersionFunction*>(opened.symbol(HALFBYTE_ONEDNN_BUILT_AGAINST));
    if (!abi || !version_of || !headers_of || !function || abi() != HALFBYTE_ONEDNN_ABI) {
      why_not = opened.path + " belongs to another version of halfbyte";
      return;
    }
    matmul = function;
    path = opened.path;
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

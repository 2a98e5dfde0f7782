// libhalfbyte_onednn: oneDNN's matmul behind a C interface, in a library of its own so that nobody else's oneDNN can
// serve its calls. Primitives are made for one thread and cached by shape, refusals too; only brgemm ones are accepted.
#include "quant/kernels/onednn/shim.h"

#if __has_include(<omp.h>)  // not for Clang's tools where GCC builds
#include <omp.h>
#else
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}
#endif

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace {

using dnnl::memory;

constexpr std::size_t kMaxPrimitives = 128;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// oneDNN plans for omp_get_max_threads() when a primitive is made; ours run inside a parallel region.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

struct Product {
  memory::desc input, weight, output, scratch;
  dnnl::matmul primitive;
};

using Shape = std::tuple<int, int64_t, int64_t, int64_t>;

// What oneDNN answered when it was asked for a shape.
struct Answer {
  std::shared_ptr<const Product> product;  // null: refused
  std::string why_not;
};

std::shared_ptr<const Product> make(const HalfbyteOnednnMatmul& m) {
  const auto dtype = m.dtype == kHalfbyteOnednnBfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
  auto product = std::make_shared<Product>();
  product->input = memory::desc({m.m, m.k}, dtype, memory::dims{m.k, 1});
  product->weight = memory::desc({m.k, m.n}, dtype, memory::dims{1, m.k});
  product->output = memory::desc({m.m, m.n}, memory::data_type::f32, memory::dims{m.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const OneThread one_thread;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc plan(cpu(), product->input, product->weight, product->output, attributes);
#else
  const dnnl::matmul::primitive_desc plan({product->input, product->weight, product->output}, attributes, cpu());
#endif
  const std::string implementation = plan.impl_info_str();
  if (implementation.rfind("brg", 0) != 0)
    throw std::runtime_error("its best matmul is '" + implementation + "', not brgemm");
  product->scratch = plan.scratchpad_desc();
  product->primitive = dnnl::matmul(plan);
  return product;
}

Answer ask(const HalfbyteOnednnMatmul& m) {
  try {
    return {make(m), {}};
  } catch (const std::exception& refusal) {
    return {nullptr, refusal.what()};
  }
}

std::shared_ptr<const Product> find_or_make(const HalfbyteOnednnMatmul& m) {
  static std::mutex mutex;
  static std::map<Shape, Answer> answers;
  const Shape shape{m.dtype, m.m, m.n, m.k};
  const std::lock_guard lock(mutex);
  auto found = answers.find(shape);
  if (found == answers.end()) {
    if (answers.size() >= kMaxPrimitives) answers.clear();  // users hold on to their products
    found = answers.emplace(shape, ask(m)).first;
  }
  if (!found->second.product) throw std::runtime_error(found->second.why_not);
  return found->second.product;
}

void execute(const Product& product, const HalfbyteOnednnMatmul& m) {
  thread_local dnnl::stream stream(cpu());
  thread_local std::vector<char> scratch;
  if (scratch.size() < product.scratch.get_size()) scratch.resize(product.scratch.get_size());
  product.primitive.execute(stream, {{DNNL_ARG_SRC, memory(product.input, cpu(), const_cast<void*>(m.input))},
                                     {DNNL_ARG_WEIGHTS, memory(product.weight, cpu(), const_cast<void*>(m.weight))},
                                     {DNNL_ARG_DST, memory(product.output, cpu(), m.output)},
                                     {DNNL_ARG_SCRATCHPAD, memory(product.scratch, cpu(), scratch.data())}});
  stream.wait();
}

}  // namespace

#define HALFBYTE_EXPORT extern "C" __attribute__((visibility("default")))

HALFBYTE_EXPORT int halfbyte_onednn_abi() { return HALFBYTE_ONEDNN_ABI; }

HALFBYTE_EXPORT const char* halfbyte_onednn_version() {
  static const std::string version = [] {
    const dnnl_version_t* v = dnnl::version();
    return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
  }();
  return version.c_str();
}

HALFBYTE_EXPORT const char* halfbyte_onednn_built_against() {
  static const std::string version = std::to_string(DNNL_VERSION_MAJOR) + "." + std::to_string(DNNL_VERSION_MINOR) +
                                     "." + std::to_string(DNNL_VERSION_PATCH);
  return version.c_str();
}

HALFBYTE_EXPORT int halfbyte_onednn_matmul(const HalfbyteOnednnMatmul* matmul, char* error, size_t error_size) {
  try {
    const auto product = find_or_make(*matmul);
    if (matmul->input) execute(*product, *matmul);
    return 0;
  } catch (const std::exception& failure) {
    std::snprintf(error, error_size, "%s", failure.what());
  } catch (...) {
    std::snprintf(error, error_size, "unknown exception");
  }
  return 1;
}

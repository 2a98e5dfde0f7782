// halfbyte-model doctor: LibTorch's part of `halfbyte doctor`, as JSON, which the first program reads.
//
// How native and widened are told apart. Products: by the CPU's instructions and the time they take, since their sums
// are in float32 either way; what takes longer than float32 does is converted first. All else: what is computed in
// float32 and rounded once equals that exactly; steps in the dtype itself do not.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include <nlohmann/json.hpp>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/headeronly/version.h>

#include <halfbyte/operators.h>

#include "loader/thread_count.h"
#include "loader/torch_runtime.h"
#include "loader/versions.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/spelling.h"
#include "tools/cli/trial.h"
#include "tools/model/model_verbs.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kSameSpeed = 1.25;             // up to this many times as long as float32 is native
constexpr double kMostlyExact = 0.99;           // share of results that equal float32's, rounded once
constexpr double kWrongBound[] = {1e-4, 2e-2};  // relative error from float64: float32, half dtypes

std::string value_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size();
  return text.substr(begin, text.find_first_of(", \n", begin) - begin);
}

std::string library_path() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&at::show_config), &info) != 0 && info.dli_fname ? info.dli_fname : "";
}

// What is there is tried, since a driver that LibTorch counts devices with may still be too old for its kernels.
ordered_json device(const Backend& backend) {
  const Absence absent = absence(backend);
  std::string reason = absent.problem;
  std::string trouble;
  if (reason.empty()) {
    reason = counted(backend.count, "device");
    trouble = try_device(Device(backend.kind));
  }
  return {{"name", title(backend.kind)},
          {"present", backend.count > 0},
          {"built", backend.is_built},
          {"count", backend.count},
          {"works", backend.count > 0 && trouble.empty()},
          {"reason", trouble.empty() ? reason : trouble}};
}

ordered_json devices() {
  ordered_json out = ordered_json::array({{{"name", "CPU"},
                                           {"present", true},
                                           {"built", true},
                                           {"count", 1},
                                           {"works", true},
                                           {"reason", counted(thread_count(), "thread")}}});
  for (const Backend& backend : backends()) out.push_back(device(backend));
  return out;
}

at::Tensor tensor(at::IntArrayRef shape, std::uint32_t seed) {
  const std::vector<float> values = trial_values(static_cast<std::size_t>(c10::multiply_integers(shape)), seed);
  return at::from_blob(const_cast<float*>(values.data()), shape, at::kFloat).clone();
}

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

std::vector<at::Tensor> cast(const std::vector<at::Tensor>& tensors, at::ScalarType dtype) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& value : tensors) out.push_back(value.to(dtype));
  return out;
}

// Another program on the machine makes threads wait for each other, and the slower of two dtypes cannot be told then.
class OneThread {
 public:
  OneThread() : threads_(thread_count()) { set_thread_count(1); }
  ~OneThread() { set_thread_count(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

double seconds(const Operation& operation, const std::vector<at::Tensor>& inputs) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  operation(inputs);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The best time of one over the best of the other, taken in turns: what disturbs one disturbs the other too.
double time_ratio(const Operation& operation, const std::vector<at::Tensor>& inputs,
                  const std::vector<at::Tensor>& others) {
  constexpr int kRounds = 15;
  const OneThread one_thread;
  double best = seconds(operation, inputs);
  double best_other = seconds(operation, others);
  for (int i = 0; i < kRounds; ++i) {
    best = std::min(best, seconds(operation, inputs));
    best_other = std::min(best_other, seconds(operation, others));
  }
  return best / best_other;
}

double error_from(const at::Tensor& result, const at::Tensor& wanted) {
  const at::Tensor exact = wanted.to(at::kDouble);
  return ((result.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

struct Probe {
  const char* name;
  bool is_timed;
  bool is_needed;
  std::vector<at::Tensor> inputs;  // float32
  Operation run;
};

// Whether this CPU has instructions that multiply values of the dtype.
bool has_products(at::ScalarType dtype) {
  static const std::vector<std::string> features = machine().features;
  const auto has = [](const char* name) { return std::ranges::find(features, name) != features.end(); };
  if (dtype == at::kBFloat16) return has("avx512_bf16") || has("amx_bf16");
  return dtype == at::kFloat || has("avx512_fp16") || has("amx_fp16");
}

void judge_by_time(const Probe& probe, at::ScalarType dtype, const std::vector<at::Tensor>& inputs, Trial& trial) {
  if (dtype == at::kFloat) {
    trial.reason = "float32 is what others are timed against";
    return;
  }
  const double ratio = time_ratio(probe.run, inputs, probe.inputs);
  const bool is_native = has_products(dtype) && ratio <= kSameSpeed;
  trial.verdict = is_native ? Verdict::kNative : Verdict::kWidened;
  trial.reason = "takes " + fixed(ratio, 2) + " x float32's time on one thread";
  if (!has_products(dtype)) trial.reason += "; this CPU has no products in it";
}

void judge_by_rounding(const at::Tensor& result, const at::Tensor& in_float32, at::ScalarType dtype, Trial& trial) {
  const double share = result.eq(in_float32.to(dtype)).to(at::kDouble).mean().item<double>();
  const bool is_once = share >= kMostlyExact;
  trial.verdict = dtype != at::kFloat && is_once ? Verdict::kWidened : Verdict::kNative;
  trial.reason = dtype == at::kFloat ? "float32 is what others are compared with"
                 : is_once           ? "equals float32's result, rounded once"
                                     : fixed(share * 100, 0) + " % equal float32's result, rounded once";
}

Trial attempt(const Probe& probe, at::ScalarType dtype) {
  Trial trial{probe.name, std::string(name(*from_torch(dtype))), {}, 0, {}, probe.is_needed};
  try {
    const std::vector<at::Tensor> inputs = cast(probe.inputs, dtype);
    const at::Tensor result = probe.run(inputs);
    const at::Tensor in_float32 = probe.run(cast(inputs, at::kFloat));
    trial.rel_rmse = error_from(result, probe.run(cast(inputs, at::kDouble)));
    if (probe.is_timed) {
      judge_by_time(probe, dtype, inputs, trial);
    } else {
      judge_by_rounding(result, in_float32, dtype, trial);
    }
    if (trial.rel_rmse < kWrongBound[dtype == at::kFloat ? 0 : 1]) return trial;
    trial.verdict = Verdict::kWrong;
    trial.reason = "the result differs from that in float64";
  } catch (const Error& error) {
    trial.verdict = Verdict::kRefused;
    trial.reason = said(error);
  } catch (const std::exception& error) {
    trial.verdict = Verdict::kRefused;
    trial.reason = cause_of(error);
  }
  return trial;
}

// Of what halfbyte's modules call, and of what a host's own would.
std::vector<Probe> probes() {
  const auto linear = [](const std::vector<at::Tensor>& t) { return at::linear(t[0], t[1]); };
  const auto softmax = [](const std::vector<at::Tensor>& t) { return at::softmax(t[0], -1); };
  const auto silu = [](const std::vector<at::Tensor>& t) { return at::silu(t[0]); };
  const auto rms_norm = [](const std::vector<at::Tensor>& t) {
    return at::rms_norm(t[0], {t[0].size(-1)}, t[1], 1e-5);
  };
  const auto attention = [](const std::vector<at::Tensor>& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2]);
  };
  const std::vector<at::Tensor> rows{tensor({64, 512}, 5), tensor({512}, 6)};
  const std::vector<at::Tensor> heads{tensor({1, 4, 64, 64}, 7), tensor({1, 4, 64, 64}, 8), tensor({1, 4, 64, 64}, 9)};
  return {{"LibTorch linear, one row", true, true, {tensor({1, 1024}, 1), tensor({1024, 1024}, 2)}, linear},
          {"LibTorch linear, many rows", true, true, {tensor({128, 1024}, 3), tensor({1024, 1024}, 4)}, linear},
          {"LibTorch softmax", false, true, rows, softmax},
          {"LibTorch silu", false, true, rows, silu},
          {"LibTorch rms_norm", false, false, rows, rms_norm},
          {"LibTorch attention", false, true, heads, attention}};
}

// Two dtypes in one product, which LibTorch refuses and halfbyte's own operator takes.
Trial attempt_mixed(const char* operation, bool is_needed, const Operation& run) {
  Trial trial{operation, "float32 x bfloat16", Verdict::kWidened, 0, {}, is_needed};
  const std::vector<at::Tensor> inputs{tensor({4, 256}, 1), tensor({64, 256}, 2).to(at::kBFloat16)};
  try {
    trial.rel_rmse = error_from(run(inputs), at::linear(inputs[0].to(at::kDouble), inputs[1].to(at::kDouble)));
    trial.reason = "both are widened in registers";
    if (trial.rel_rmse < kWrongBound[1]) return trial;
    trial.verdict = Verdict::kWrong;
    trial.reason = "the result differs from that in float64";
  } catch (const std::exception& error) {
    trial.verdict = Verdict::kRefused;
    trial.reason = cause_of(error);
  }
  return trial;
}

ordered_json trials() {
  const c10::InferenceMode guard;
  ordered_json out = ordered_json::array();
  for (const Probe& probe : probes()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      out.push_back(to_json(attempt(probe, dtype)));
  }
  out.push_back(to_json(attempt_mixed("LibTorch linear", false, [](const auto& t) { return at::linear(t[0], t[1]); })));
  out.push_back(to_json(attempt_mixed("halfbyte::dense_linear", true, [](const auto& t) {
    return operators::dense_linear(t[0], t[1], std::nullopt);
  })));
  return out;
}

ordered_json broken_versions(const LibraryVersion& torch) {
  if (agreement(torch.built_against, torch.running) != Agreement::kOtherMinor) return ordered_json::array();
  return ordered_json::array(
      {{{"problem", version_note(torch)},
        {"fix", "build halfbyte again (tools/setup.sh), or install LibTorch " + torch.built_against}}});
}

// "CUDA Runtime 12.6" of LibTorch's own text; empty without CUDA.
std::string cuda_runtime(const std::string& config) { return value_after(config, "CUDA Runtime "); }

ExitStatus run() {
  operators::register_operators();
  const LibraryVersion torch = torch_version();
  print_json({{"built_against", torch.built_against},
              {"found", torch.running},
              {"library", library_path()},
              {"cpu_capability", at::get_cpu_capability()},
              {"onednn", value_after(at::get_mkldnn_version(), "DNN v")},
              {"threads", thread_count()},
              {"cuda_runtime", cuda_runtime(at::show_config())},
              {"devices", devices()},
              {"trials", trials()},
              {"broken", broken_versions(torch)}});
  return ExitStatus::kDone;
}

}  // namespace

Action prepare_doctor(OptionParser&, const CommonOptions&) {
  return [] { return run(); };
}

}  // namespace halfbyte::cli

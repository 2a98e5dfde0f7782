#include "loader/torch_runtime.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include "loader/versions.h"
#include "quant/kernels/onednn/onednn.h"

namespace halfbyte {
namespace {

using Kind = Device::Kind;

struct KindPair {
  Kind kind;
  at::DeviceType type;
};

constexpr auto kPairs = std::to_array<KindPair>({{Kind::kCpu, at::kCPU},
                                                 {Kind::kCuda, at::kCUDA},
                                                 {Kind::kXpu, at::kXPU},
                                                 {Kind::kMps, at::kMPS},
                                                 {Kind::kMeta, at::kMeta}});

bool was_built_with(const char* key) {
  const std::string value = build_setting(key);
  return !value.empty() && value != "0" && value != "OFF";
}

bool has_driver(Kind kind) {
  std::istringstream files(driver_files(kind));
  std::error_code ignored;
  for (std::string file; files >> file;) {
    if (std::filesystem::exists(file, ignored)) return true;
  }
  return false;
}

int count_of(at::DeviceType type) { return at::globalContext().getAcceleratorHooksInterface(type).deviceCount(); }

}  // namespace

// Settings are written "KEY=value, "; a build for the CPU alone says "USE_CUDA=0".
std::string build_setting(const std::string& key) {
  static const std::string config = at::show_config();
  const std::size_t at = config.find(" " + key + "=");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + key.size() + 2;
  return config.substr(begin, config.find_first_of(", \n", begin) - begin);
}

LibraryVersion torch_version() { return {"LibTorch", TORCH_VERSION, build_setting("TORCH_VERSION")}; }

std::vector<Backend> backends() {
  const bool has_cuda = at::hasCUDA(), has_xpu = at::hasXPU(), has_mps = at::hasMPS();
  return {{Kind::kCuda, has_cuda || was_built_with("USE_CUDA") || was_built_with("USE_ROCM"), has_driver(Kind::kCuda),
           has_cuda ? count_of(at::kCUDA) : 0},
          {Kind::kXpu, has_xpu || was_built_with("USE_XPU"), has_driver(Kind::kXpu), has_xpu ? count_of(at::kXPU) : 0},
          {Kind::kMps, has_mps, has_mps, has_mps ? 1 : 0}};
}

std::string try_device(const Device& device) {
  try {
    const at::Tensor one = at::ones({2, 2}, at::TensorOptions().device(to_torch(device)));
    return one.matmul(one).sum().item<float>() == 8 ? "" : "2 x 2 ones times themselves are not 2 each";
  } catch (const c10::Error& error) {
    const std::string said = error.what_without_backtrace();
    return said.substr(0, said.find('\n'));
  } catch (const std::exception& error) {
    return error.what();
  }
}

at::Device to_torch(const Device& device) {
  const auto pair = std::ranges::find(kPairs, device.kind(), &KindPair::kind);
  const bool has_index = device.kind() == Kind::kCuda || device.kind() == Kind::kXpu;
  return {pair->type, static_cast<c10::DeviceIndex>(has_index ? device.index() : -1)};
}

DeviceChoice usable_device(const Device& wanted) {
  check_torch_version(torch_version());
  return choose_device(wanted, backends(), try_device);
}

DeviceChoice begin_on_device(const Device& wanted, LoadReport& report) {
  DeviceChoice choice = usable_device(wanted);
  report.device = choice.device.name();
  report.device_reason = choice.why;
  report.versions.push_back(torch_version());
  if (choice.device.is_cpu() && quant::onednn::available()) report.versions.push_back(onednn_version());
  for (const LibraryVersion& library : report.versions) {
    if (std::string note = version_note(library); !note.empty()) report.notes.push_back(std::move(note));
  }
  return choice;
}

void check_usable(at::Device wanted) {
  const auto pair = std::ranges::find(kPairs, wanted.type(), &KindPair::type);
  if (pair != kPairs.end()) usable_device(Device(pair->kind, std::max<int>(0, wanted.index())));
}

}  // namespace halfbyte

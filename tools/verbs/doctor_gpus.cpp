// What stands between a GPU of this machine and halfbyte, and the fix.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "tools/verbs/doctor.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

// In the words of the vendor and of LibTorch.
struct VendorWords {
  GpuVendor vendor;
  const char* backend;      // LibTorch's name of the device
  const char* needs;        // what a LibTorch must have been built with
  std::string_view driver;  // the kernel's, that can compute; two where there are two, with a blank between
  const char* install_driver;
  const char* give_to_container;
  const char* group;  // that may open the device files
  const char* install_library;
};

constexpr auto kWords = std::to_array<VendorWords>({
    {.vendor = GpuVendor::kNvidia,
     .backend = "CUDA",
     .needs = "CUDA",
     .driver = "nvidia",
     .install_driver = "install NVIDIA's driver (Debian: nvidia-driver; Ubuntu: ubuntu-drivers install) and restart",
     .give_to_container =
         "in a container, start it with the GPU (docker run --gpus all); else load the module (modprobe nvidia-uvm)",
     .group = "video",
     .install_library = "install the driver's libraries in the driver's version (Debian: libcuda1)"},
    {.vendor = GpuVendor::kAmd,
     .backend = "CUDA",
     .needs = "ROCm",
     .driver = "amdgpu",
     .install_driver = "install AMD's driver (amdgpu-install --usecase=rocm) and restart",
     .give_to_container =
         "in a container, start it with the GPU (docker run --device /dev/kfd --device /dev/dri); else load the module "
         "(modprobe amdgpu)",
     .group = "render",
     .install_library = "install ROCm (amdgpu-install --usecase=rocm)"},
    {.vendor = GpuVendor::kIntel,
     .backend = "XPU",
     .needs = "XPU",
     .driver = "i915 xe",
     .install_driver = "use a Linux kernel that knows this GPU (6.8 or newer) and its firmware",
     .give_to_container =
         "in a container, start it with the GPU (docker run --device /dev/dri); else load the module (modprobe xe)",
     .group = "render",
     .install_library = "install Intel's compute runtime (libze-intel-gpu1, intel-opencl-icd)"},
});

// The oldest driver that runs programs of a CUDA major version. Source: NVIDIA, CUDA Compatibility, "minor version
// compatibility".
struct CudaDriver {
  int cuda_major;
  int driver_major;
};
constexpr auto kCudaDrivers = std::to_array<CudaDriver>({{11, 450}, {12, 525}, {13, 580}});

int leading_number(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string subject(const Gpu& gpu) {
  return std::string(name(gpu.vendor)) + " GPU" + (gpu.id.empty() ? "" : " " + gpu.id + " at " + gpu.address);
}

BrokenThing driver_problem(const Gpu& gpu, const VendorWords& words) {
  if (gpu.driver.empty()) return {subject(gpu) + " has no driver", words.install_driver};
  if (gpu.driver == "vfio-pci")
    return {subject(gpu) + " is set aside for a virtual machine (vfio-pci)",
            "use it there, or give it back its driver"};
  return {subject(gpu) + " has the driver " + gpu.driver + ", which cannot compute", words.install_driver};
}

BrokenThing too_old(const Gpu& gpu, const std::string& cuda, int wanted) {
  return {subject(gpu) + " has driver " + gpu.driver_version + ", too old for LibTorch's CUDA " + cuda,
          "install NVIDIA's driver " + std::to_string(wanted) + " or newer, or a LibTorch for an older CUDA"};
}

// What the system lacks; nothing: it has all.
std::optional<BrokenThing> system_problem(const Gpu& gpu, const VendorWords& words, const GpuSupport& support,
                                          const std::string& cuda) {
  const bool can_compute = !gpu.driver.empty() && words.driver.find(gpu.driver) != std::string_view::npos;
  if (!can_compute) return driver_problem(gpu, words);
  if (!support.has_device_files)
    return BrokenThing{subject(gpu) + " has its driver, but its files in /dev are missing", words.give_to_container};
  if (!support.may_open) {
    return BrokenThing{"this user may not open the files in /dev of " + subject(gpu),
                       std::string("join their group (usermod -aG ") + words.group + " USER) and log in again"};
  }
  const auto row = std::ranges::find(kCudaDrivers, leading_number(cuda), &CudaDriver::cuda_major);
  const int driver = leading_number(gpu.driver_version);
  if (gpu.vendor == GpuVendor::kNvidia && row != kCudaDrivers.end() && driver > 0 && driver < row->driver_major)
    return too_old(gpu, cuda, row->driver_major);
  if (!support.has_library)
    return BrokenThing{subject(gpu) + " has its driver, but the driver's library is missing", words.install_library};
  return std::nullopt;
}

// What LibTorch says of a device: a row of its table; null: it says nothing.
ordered_json device_row(const ordered_json& torch, const std::string& backend) {
  if (!torch.is_object() || !torch.contains("devices")) return nullptr;
  for (const ordered_json& row : torch["devices"]) {
    if (row.value("name", "") == backend) return row;
  }
  return nullptr;
}

std::string as_note(const BrokenThing& thing) { return thing.problem + ": " + thing.fix; }

// Who installed a LibTorch for a GPU wants to use it: then what stands in the way is broken. Else it is a note.
void judge(const Gpu& gpu, const VendorWords& words, const std::filesystem::path& root, Diagnosis& out) {
  const ordered_json row = device_row(out.torch, words.backend);
  if (row.is_object() && row.value("works", false)) return;
  const bool is_built = row.is_object() && row.value("built", false);
  const std::string cuda = out.torch.is_object() ? out.torch.value("cuda_runtime", "") : "";
  const auto problem = system_problem(gpu, words, find_support(gpu.vendor, root), cuda);
  if (is_built) {
    out.broken.push_back(problem.value_or(BrokenThing{
        "LibTorch cannot use the " + subject(gpu) + ": " + row.value("reason", ""),
        std::string("compare LibTorch's version with what the GPU and its driver need (docs/devices.md)")}));
    return;
  }
  if (problem) out.notes.push_back(as_note(*problem));
  if (row.is_object()) {
    out.notes.push_back(subject(gpu) + " is not used, since this LibTorch was built without " + words.needs +
                        ": install one with it and build halfbyte against it (docs/devices.md)");
  }
}

}  // namespace

void look_at_gpus(const std::filesystem::path& root, Diagnosis& out) {
  out.gpus = find_gpus(root);
  for (std::size_t i = 0; i < out.gpus.size(); ++i) {
    const Gpu& gpu = out.gpus[i];
    // Of several alike, the first speaks for all.
    const auto is_alike = [&](const Gpu& other) { return other.vendor == gpu.vendor && other.driver == gpu.driver; };
    if (std::find_if(out.gpus.begin(), out.gpus.end(), is_alike) != out.gpus.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    judge(gpu, *std::ranges::find(kWords, gpu.vendor, &VendorWords::vendor), root, out);
  }
}

}  // namespace halfbyte::cli

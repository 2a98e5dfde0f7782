// Which GPUs the machine has and what of their drivers is there, found without any vendor's library.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace halfbyte::cli {

enum class GpuVendor { kNvidia, kAmd, kIntel };

struct Gpu {
  GpuVendor vendor;
  std::string id;              // "10de:2330"; empty: not on the list of PCI devices
  std::string address;         // "0000:01:00.0"
  std::string driver;          // of the kernel: "nvidia", "nouveau", "vfio-pci"; empty: none
  std::string driver_version;  // "550.54.14" of NVIDIA's; else empty
};

// What a vendor's GPUs need besides themselves.
struct GpuSupport {
  bool has_device_files = false;  // /dev/nvidia0, /dev/kfd, /dev/dri/renderD128
  bool may_open = true;           // this user may open them
  bool has_library = false;       // libcuda.so.1, libze_intel_gpu.so.1 ...
};

const char* name(GpuVendor vendor) noexcept;  // "NVIDIA"

// `root` stands for "/": tests give a tree of their own.
std::vector<Gpu> find_gpus(const std::filesystem::path& root);
GpuSupport find_support(GpuVendor vendor, const std::filesystem::path& root);

}  // namespace halfbyte::cli

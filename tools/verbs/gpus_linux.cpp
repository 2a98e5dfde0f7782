// GPUs in Linux's list of PCI devices, and their drivers in /proc, /dev and the folders of libraries.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>

#include "tools/verbs/gpus.h"

namespace halfbyte::cli {
namespace {

namespace fs = std::filesystem;

struct VendorRow {
  GpuVendor vendor;
  const char* name;
  std::string_view pci;           // as /sys writes it
  std::string_view device_files;  // the beginning of their paths below "/"
  std::string_view library;
};

constexpr auto kVendors = std::to_array<VendorRow>({
    {.vendor = GpuVendor::kNvidia,
     .name = "NVIDIA",
     .pci = "0x10de",
     .device_files = "dev/nvidia",
     .library = "libcuda.so.1"},
    {.vendor = GpuVendor::kAmd,
     .name = "AMD",
     .pci = "0x1002",
     .device_files = "dev/kfd",
     .library = "libhsa-runtime64.so.1"},
    {.vendor = GpuVendor::kIntel,
     .name = "Intel",
     .pci = "0x8086",
     .device_files = "dev/dri/renderD",
     .library = "libze_intel_gpu.so.1"},
});

// Display controllers, and processing accelerators, as some GPUs without a display call themselves.
constexpr auto kClasses = std::to_array<std::string_view>({"0x03", "0x1200"});

constexpr auto kLibraryFolders = std::to_array<std::string_view>(
    {"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib",
     "usr/lib/wsl/lib", "usr/local/nvidia/lib64", "usr/local/cuda/compat", "opt/rocm/lib"});

const VendorRow& row_of(GpuVendor vendor) { return *std::ranges::find(kVendors, vendor, &VendorRow::vendor); }

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (fs::directory_iterator at(directory, ignored), end; !ignored && at != end; at.increment(ignored))
    out.push_back(at->path());
  std::ranges::sort(out);
  return out;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 ..." -> "550.54.14"
std::string nvidia_version(const fs::path& root) {
  const std::string line = first_line(root / "proc/driver/nvidia/version");
  constexpr std::string_view kDigits = "0123456789.";
  for (std::size_t begin = 0; (begin = line.find_first_of("0123456789", begin)) != std::string::npos;) {
    const std::size_t end = std::min(line.find_first_not_of(kDigits, begin), line.size());
    std::string word = line.substr(begin, end - begin);
    const bool is_word = begin > 0 && line[begin - 1] == ' ' && (end == line.size() || line[end] == ' ');
    if (is_word && word.find('.') != std::string::npos) return word;
    begin = end;
  }
  return "";
}

std::vector<fs::path> device_files(const VendorRow& vendor, const fs::path& root) {
  const fs::path start = root / vendor.device_files;
  const std::string beginning = start.filename().string();
  std::vector<fs::path> out;
  for (const fs::path& path : entries(start.parent_path())) {
    const std::string file = path.filename().string();
    if (!file.starts_with(beginning)) continue;
    const std::string rest = file.substr(beginning.size());
    if (std::ranges::all_of(rest, [](char c) { return c >= '0' && c <= '9'; })) out.push_back(path);
  }
  return out;
}

std::string without_0x(const std::string& text) { return text.starts_with("0x") ? text.substr(2) : text; }

std::string driver_of(const fs::path& device) {
  std::error_code ignored;
  return fs::read_symlink(device / "driver", ignored).filename().string();
}

void add_gpu(const fs::path& device, std::vector<Gpu>& out) {
  const std::string vendor_id = first_line(device / "vendor"), kind = first_line(device / "class");
  const auto vendor = std::ranges::find(kVendors, std::string_view(vendor_id), &VendorRow::pci);
  const auto is_kind = [&](std::string_view beginning) { return kind.starts_with(beginning); };
  if (vendor == kVendors.end() || std::ranges::none_of(kClasses, is_kind)) return;
  out.push_back({vendor->vendor, without_0x(vendor_id) + ":" + without_0x(first_line(device / "device")),
                 device.filename().string(), driver_of(device), ""});
}

}  // namespace

const char* name(GpuVendor vendor) noexcept { return row_of(vendor).name; }

std::vector<Gpu> find_gpus(const fs::path& root) {
  std::vector<Gpu> out;
  for (const fs::path& device : entries(root / "sys/bus/pci/devices")) add_gpu(device, out);
  const auto is_nvidia = [](const Gpu& gpu) { return gpu.vendor == GpuVendor::kNvidia; };
  // Some sandboxes show the driver and no list of devices.
  if (std::ranges::none_of(out, is_nvidia) && !device_files(row_of(GpuVendor::kNvidia), root).empty())
    out.push_back({GpuVendor::kNvidia, "", "", "nvidia", ""});
  for (Gpu& gpu : out) {
    if (is_nvidia(gpu) && gpu.driver == "nvidia") gpu.driver_version = nvidia_version(root);
  }
  return out;
}

GpuSupport find_support(GpuVendor vendor, const fs::path& root) {
  const VendorRow& row = row_of(vendor);
  const std::vector<fs::path> files = device_files(row, root);
  GpuSupport out;
  out.has_device_files = !files.empty();
  out.may_open =
      std::ranges::all_of(files, [](const fs::path& path) { return access(path.c_str(), R_OK | W_OK) == 0; });
  std::error_code ignored;
  out.has_library = std::ranges::any_of(
      kLibraryFolders, [&](std::string_view folder) { return fs::exists(root / folder / row.library, ignored); });
  return out;
}

}  // namespace halfbyte::cli

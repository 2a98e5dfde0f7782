#include "loader/device_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include <halfbyte/error.h>

namespace halfbyte {
namespace {

using Kind = Device::Kind;

struct KindRow {
  Kind kind;
  const char* name;
  const char* title;
  bool has_index;
  const char* driver_files;
  const char* driver;     // what to install where those files are missing
  const char* container;  // what `docker run` is told to give a container such a GPU; empty: it cannot
};

// The order is that of preference: `auto` takes the first that is there.
constexpr auto kKinds = std::to_array<KindRow>({
    {.kind = Kind::kCuda,
     .name = "cuda",
     .title = "CUDA",
     .has_index = true,
     .driver_files = "/dev/nvidiactl /dev/dxg /dev/kfd",
     .driver = "install NVIDIA's driver",
     .container = "gpus all"},
    {.kind = Kind::kXpu,
     .name = "xpu",
     .title = "XPU",
     .has_index = true,
     .driver_files = "/dev/dri /dev/dxg",
     .driver = "install Intel's compute runtime (intel-opencl-icd, libze-intel-gpu1)",
     .container = "device /dev/dri"},
    {.kind = Kind::kMps,
     .name = "mps",
     .title = "MPS",
     .has_index = false,
     .driver_files = "",
     .driver = "it is there on macOS only",
     .container = ""},
    {.kind = Kind::kCpu,
     .name = "cpu",
     .title = "CPU",
     .has_index = false,
     .driver_files = "",
     .driver = "",
     .container = ""},
    {.kind = Kind::kMeta,
     .name = "meta",
     .title = "Meta",
     .has_index = false,
     .driver_files = "",
     .driver = "",
     .container = ""},
    {.kind = Kind::kBest,
     .name = "auto",
     .title = "auto",
     .has_index = false,
     .driver_files = "",
     .driver = "",
     .container = ""},
});

const KindRow& row_of(Kind kind) { return *std::ranges::find(kKinds, kind, &KindRow::kind); }

[[noreturn]] void refuse_text(std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument,
              "device \"" + std::string(text) + "\" is not one of auto, cpu, cuda, cuda:N, xpu, xpu:N, mps");
}

std::string counted_devices(const Backend& backend) {
  const KindRow& row = row_of(backend.kind);
  std::string text = std::to_string(backend.count) + " " + row.title + (backend.count == 1 ? " device" : " devices");
  text += ", " + Device(backend.kind).name();
  return backend.count > 1 ? text + " to " + Device(backend.kind, backend.count - 1).name() : text;
}

std::string without(const std::string& names) { return "this LibTorch was built without " + names; }

std::string broken_text(const Device& device, const std::string& answer) {
  return device.name() + " is there but does not work: " + answer;
}

std::string driver_cure(const KindRow& row) {
  const std::string container = row.container;
  return row.driver + (container.empty() ? "" : ", or give the container the GPU (docker run --" + container + ")");
}

// "CUDA, XPU and MPS"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

DeviceChoice choose_best(std::span<const Backend> backends, const TryDevice& try_device) {
  std::string why;
  std::vector<std::string> not_built;
  for (const KindRow& row : kKinds) {
    const auto backend = std::ranges::find(backends, row.kind, &Backend::kind);
    if (backend == backends.end()) continue;
    if (!backend->is_built) {
      not_built.emplace_back(row.title);
      continue;
    }
    const std::string problem = absence(*backend).problem;
    const Device device(row.kind);
    const std::string answer = problem.empty() ? try_device(device) : "";
    if (problem.empty() && answer.empty()) return {device, "auto: the first of " + counted_devices(*backend)};
    why += (why.empty() ? "" : "; ") + (problem.empty() ? broken_text(device, answer) : problem);
  }
  if (!not_built.empty()) why += (why.empty() ? "" : "; ") + without(listed(not_built));
  return {Device(), "auto: " + why};
}

void check_there(const Device& wanted, const Backend& backend) {
  const Absence absent = absence(backend);
  if (!absent.problem.empty()) {
    throw Error(ErrorCode::kNotFound,
                "device " + wanted.name() + ": " + absent.problem + "; " + absent.cure + ", or choose device cpu");
  }
  if (wanted.index() < backend.count) return;
  throw Error(ErrorCode::kNotFound, "device " + wanted.name() + ": there is no such one; this machine has " +
                                        counted_devices(backend) + "; choose one of these, or cpu");
}

}  // namespace

Device Device::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto row = std::ranges::find(kKinds, text.substr(0, colon), &KindRow::name);
  if (row == kKinds.end()) refuse_text(text);
  if (colon == std::string_view::npos) return Device(row->kind);
  int index = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data() + colon + 1, end, index);
  if (!row->has_index || code != std::errc() || stop != end || index < 0 || index > 127) refuse_text(text);
  return Device(row->kind, index);
}

std::string Device::name() const {
  const KindRow& row = row_of(kind_);
  return row.has_index ? std::string(row.name) + ":" + std::to_string(index_) : row.name;
}

const char* title(Kind kind) noexcept { return row_of(kind).title; }
const char* driver_files(Kind kind) noexcept { return row_of(kind).driver_files; }

Absence absence(const Backend& backend) {
  const KindRow& row = row_of(backend.kind);
  const std::string name = row.title;
  if (backend.count > 0) return {};
  if (!backend.is_built) {
    const std::string install = "install a LibTorch with " + name + " and build halfbyte against it (docs/devices.md)";
    return {without(name), backend.kind == Kind::kMps ? row.driver : install};
  }
  if (!backend.has_driver) return {"there is no driver for " + name, driver_cure(row)};
  return {"LibTorch finds no " + name + " device that it can use", "`" + Operation::kDoctor + "` says what is missing"};
}

DeviceChoice choose_device(const Device& wanted, std::span<const Backend> backends, const TryDevice& try_device) {
  if (wanted.kind() == Kind::kBest) return choose_best(backends, try_device);
  if (wanted.kind() == Kind::kCpu || wanted.kind() == Kind::kMeta) return {wanted, "asked for"};
  const auto found = std::ranges::find(backends, wanted.kind(), &Backend::kind);
  check_there(wanted, found == backends.end() ? Backend{.kind = wanted.kind()} : *found);
  const std::string answer = try_device(wanted);
  if (answer.empty()) return {wanted, "asked for"};
  throw Error(ErrorCode::kNoResources,
              "device " + broken_text(wanted, answer) + "; see `" + Operation::kDoctor + "`, or choose device cpu");
}

}  // namespace halfbyte

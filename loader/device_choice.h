// Chooses the device that a model is put on, and the error where the wanted one is missing. Needs no LibTorch: its list
// of devices is an argument.
#pragma once

#include <functional>
#include <span>
#include <string>

#include <halfbyte/device.h>
#include <halfbyte/text.h>

namespace halfbyte {

// One kind of device besides the CPU, as LibTorch reports it.
struct Backend {
  Device::Kind kind;
  bool is_built = false;    // into this LibTorch
  bool has_driver = false;  // the system has the driver's device files
  int count = 0;            // devices that LibTorch can use
};

struct DeviceChoice {
  Device device;
  std::string why;  // "auto: CUDA is not built into this LibTorch, ..."
};

const char* title(Device::Kind kind) noexcept;         // "CUDA"
const char* driver_files(Device::Kind kind) noexcept;  // what a driver puts below /dev, separated by blanks

// Why no device of this kind can be used, and what to do. Empty: there is one.
struct Absence {
  std::string problem;
  Text cure;
};
Absence absence(const Backend& backend);

// LibTorch's error when a first tensor is made there; empty: it works.
using TryDevice = std::function<std::string(const Device&)>;

// Errors: kNotFound when the wanted device is not there, kNoResources when it is there and does not work.
DeviceChoice choose_device(const Device& wanted, std::span<const Backend> backends, const TryDevice& try_device);

}  // namespace halfbyte

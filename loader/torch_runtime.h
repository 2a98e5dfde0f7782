// The LibTorch that is running: its version, and the devices that it can use here.
#pragma once

#include <string>
#include <vector>

#include <c10/core/Device.h>

#include <halfbyte/load_report.h>

#include "loader/device_choice.h"

namespace halfbyte {

// "TORCH_VERSION", "USE_CUDA" ... of LibTorch's own description; empty: it does not say.
std::string build_setting(const std::string& key);

LibraryVersion torch_version();
std::vector<Backend> backends();

// Makes a tensor there and computes with it. Returns the first line of LibTorch's error; empty: it works.
std::string try_device(const Device& device);

at::Device to_torch(const Device& device);  // Precondition: not kBest.
// The device that a load is to use, after LibTorch's version was found to fit. Errors: kNotFound, kNoResources,
// kUnsupported; see choose_device() and check_torch_version().
DeviceChoice usable_device(const Device& wanted);
// The same, entered into the report with the versions of LibTorch and, for the CPU, of oneDNN.
DeviceChoice begin_on_device(const Device& wanted, LoadReport& report);
// The same of a device as LibTorch names it. Kinds that halfbyte does not know are not checked.
void check_usable(at::Device wanted);

}  // namespace halfbyte

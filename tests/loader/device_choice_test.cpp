// Names of devices, which one is chosen, and what is said when the wanted one is not there.
#include "loader/device_choice.h"

#include <vector>

#include <halfbyte/error.h>

#include "loader/files/printable.h"
#include "tests/catch.h"

namespace halfbyte {
namespace {

using Kind = Device::Kind;

std::string works(const Device&) { return ""; }

std::string error_of(ErrorCode wanted, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.code() == wanted);
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "no error";
}

std::string refusal(const Device& wanted, const std::vector<Backend>& backends) {
  return error_of(ErrorCode::kNotFound, [&] { choose_device(wanted, backends, works); });
}

const std::vector<Backend> kNothing = {{Kind::kCuda}, {Kind::kXpu}, {Kind::kMps}};

TEST_CASE("devices are parsed and named", "[device]") {
  CHECK(Device::parse("cpu") == Device());
  CHECK(Device::parse("cuda") == Device(Kind::kCuda, 0));
  CHECK(Device::parse("cuda:3") == Device(Kind::kCuda, 3));
  CHECK(Device::parse("xpu:1").name() == "xpu:1");
  CHECK(Device::parse("cuda").name() == "cuda:0");
  CHECK(Device::parse("mps").name() == "mps");
  CHECK(Device::parse("auto").kind() == Kind::kBest);
  CHECK(Device::parse("meta").kind() == Kind::kMeta);
}

TEST_CASE("what is no device is refused by name, with those that are", "[device]") {
  for (const char* text : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:128", "cuda:99999999999",
                           "cpu:0", "mps:0", "auto:1", " cpu"}) {
    const std::string message = error_of(ErrorCode::kInvalidArgument, [&] { Device::parse(text); });
    INFO(text);
    CHECK_THAT(message, Catch::Contains(files::in_quotes(text)) && Catch::Contains("auto, cpu, cuda"));
  }
}

TEST_CASE("auto takes the best device that is there and works, and says why", "[device]") {
  const std::vector<Backend> both = {{Kind::kXpu, true, true, 1}, {Kind::kCuda, true, true, 2}, {Kind::kMps}};
  const Device best(Kind::kBest);
  CHECK(choose_device(best, both, works).device == Device(Kind::kCuda));
  CHECK(choose_device(best, both, works).why == "auto: the first of 2 CUDA devices, cuda:0 to cuda:1");

  const auto no_cuda = [](const Device& device) { return device.kind() == Kind::kCuda ? "no kernel image" : ""; };
  const DeviceChoice second = choose_device(best, both, no_cuda);
  CHECK(second.device == Device(Kind::kXpu));

  const DeviceChoice cpu = choose_device(best, kNothing, works);
  CHECK(cpu.device.is_cpu());
  CHECK(cpu.why == "auto: this LibTorch was built without CUDA, XPU and MPS");

  const std::vector<Backend> broken = {{Kind::kCuda, true, true, 1}, {Kind::kXpu, true, false, 0}};
  const DeviceChoice fallen = choose_device(best, broken, no_cuda);
  CHECK(fallen.device.is_cpu());
  CHECK(fallen.why == "auto: cuda:0 is there but does not work: no kernel image; there is no driver for XPU");
}

TEST_CASE("a device that is not there is refused with what to install or choose", "[device]") {
  const Device cuda(Kind::kCuda), xpu(Kind::kXpu);
  CHECK_THAT(refusal(cuda, kNothing), Catch::StartsWith("device cuda:0: this LibTorch was built without CUDA") &&
                                          Catch::Contains("install a LibTorch with CUDA") &&
                                          Catch::EndsWith("or choose device cpu"));
  CHECK_THAT(refusal(cuda, {}), Catch::Contains("built without CUDA"));
  CHECK_THAT(refusal(cuda, {{Kind::kCuda, true, false, 0}}),
             Catch::Contains("there is no driver for CUDA") && Catch::Contains("NVIDIA's driver"));
  CHECK_THAT(refusal(xpu, {{Kind::kXpu, true, false, 0}}), Catch::Contains("Intel's compute runtime"));
  CHECK_THAT(refusal(cuda, {{Kind::kCuda, true, true, 0}}),
             Catch::Contains("LibTorch finds no CUDA device") && Catch::Contains("halfbyte doctor"));
  CHECK_THAT(refusal(Device(Kind::kCuda, 2), {{Kind::kCuda, true, true, 2}}),
             Catch::Contains("device cuda:2") && Catch::Contains("2 CUDA devices, cuda:0 to cuda:1"));
  CHECK_THAT(refusal(Device(Kind::kMps), kNothing), Catch::Contains("macOS"));
}

TEST_CASE("a device that is there and does not work is refused with LibTorch's reason", "[device]") {
  const std::string message = error_of(ErrorCode::kNoResources, [] {
    const std::vector<Backend> one = {{Kind::kCuda, true, true, 1}};
    choose_device(Device(Kind::kCuda), one, [](const Device&) { return "the driver is too old"; });
  });
  CHECK_THAT(message, Catch::Contains("cuda:0 is there but does not work: the driver is too old") &&
                          Catch::Contains("halfbyte doctor"));
}

TEST_CASE("the CPU needs no table", "[device]") {
  CHECK(choose_device(Device(), {}, works).why == "asked for");
  CHECK(choose_device(Device(Kind::kMeta), {}, works).device.kind() == Kind::kMeta);
}

}  // namespace
}  // namespace halfbyte

#include "worker/device_types.h"

#include "third_party/absl/str_cat.h"
#include "worker/devices/cpu/cpu_devices.h"
#include "worker/devices/cuda/cuda_devices.h"
#include "worker/devices/cuda/emulated_cuda.h"
#include "worker/devices/rehearsed_devices.h"

namespace tessera::worker {
namespace {

constexpr const DeviceType* kTypes[] = {
    &kCpuDevices,
    &kCudaDevices,
    &kEmulatedCudaDevices,
    &kRehearsedDevices,
};

bool Begins(std::string_view device, std::string_view name) {
  if (!device.starts_with(name)) return false;
  return name.ends_with(':') || device.size() == name.size() || device[name.size()] == '-';
}

}  // namespace

std::span<const DeviceType* const> DeviceTypes() { return kTypes; }

const DeviceType* FindDeviceType(std::string_view device,
                                 std::span<const DeviceType* const> types) {
  for (const DeviceType* type : types) {
    if (Begins(device, type->name)) return type->takes(device) ? type : nullptr;
  }
  return nullptr;
}

std::string DeviceNamesText() {
  std::string text;
  for (const DeviceType* type : DeviceTypes()) {
    text += StrCat(text.empty() ? "" : "; ", type->text);
  }
  return text;
}

}  // namespace tessera::worker

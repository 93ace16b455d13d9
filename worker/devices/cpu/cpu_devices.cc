#include "worker/devices/cpu/cpu_devices.h"

#include <utility>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/isa.h"
#include "proto/device_names.h"

namespace tessera::worker {
namespace {

absl::StatusOr<OpenedDevice> Open(const DeviceFlags& flags, const DeviceShare& share) {
  const auto isa = kernels::ParseIsa(flags.cpu_isa);
  if (!isa.ok()) return isa.status();
  auto device = kernels::CreateCpuDevice({.cores = share.cores,
                                          .memory_bytes = share.memory_bytes,
                                          .isa = *isa,
                                          .cores_shared = share.cores_shared});
  if (!device.ok()) return device.status();
  OpenedDevice opened;
  opened.device = *std::move(device);
  opened.info.set_kind(std::string(kCpuDevice));
  opened.info.set_kernel_path(std::string(Name(*isa)));
  opened.look = {.buffer_bytes = int64_t{128} << 20, .runs = 2};
  return opened;
}

}  // namespace

const DeviceType kCpuDevices = {
    .name = kCpuDevice,
    .text = "cpu",
    .takes = [](std::string_view device) { return device == kCpuDevice; },
    .open = &Open};

}  // namespace tessera::worker

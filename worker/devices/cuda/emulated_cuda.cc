#include "worker/devices/cuda/emulated_cuda.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/cuda/launch/gpu_limits.h"
#include "proto/device_names.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/devices/cuda/device_tuning.h"

namespace tessera::worker {
namespace {

// Without --memory: the emulator writes all memory that it gives, so a pool of half the machine's
// would take long and be there in full.
constexpr int64_t kMemoryBytes = int64_t{1} << 30;

// For tests: the emulated GPU faults, once and for all, as soon as this file is there.
constexpr const char* kFaultFile = "CUDA_EMULATOR_FAULT_FILE";

bool FaultFileIsThere() { return access(std::getenv(kFaultFile), F_OK) == 0; }

absl::StatusOr<OpenedDevice> Open(const DeviceFlags& flags, const DeviceShare& share) {
  const int64_t memory_bytes =
      flags.memory_bytes > 0 ? share.memory_bytes : std::min(share.memory_bytes, kMemoryBytes);
  kernels::cuda::emulated::Injection injection;
  injection.memory_bytes = memory_bytes;
  if (std::getenv(kFaultFile) != nullptr) injection.fails_now = &FaultFileIsThere;
  kernels::cuda::emulated::Inject(injection);
  kernels::cuda::emulated::SetCapability(EmulatedCapability(flags.name));
  const auto tuning = OpenTuning(flags, flags.name, "emulator", "");
  auto device = kernels::cuda::emulated::CreateCudaDevice(
      {.memory_bytes = memory_bytes, .maps_sums = flags.mapped_sums, .tuning = tuning});
  if (!device.ok()) return device.status();
  Logger("worker").warn(
      "--device {}: an emulator runs the GPU's kernels on one core, far slower than the "
      "CPU's own kernels; it is for tests",
      flags.name);
  OpenedDevice opened;
  opened.device = *std::move(device);
  opened.info.set_kind(std::string(kEmulatedGpuDevice));
  opened.info.set_kernel_path("mma");
  opened.look = {.buffer_bytes = int64_t{1} << 20, .reads_weights = true, .runs = 1};
  opened.probe = {.buffer_bytes = int64_t{1} << 20,
                  .reads_weights = true,
                  .matrix_size = 64,
                  .rows = 8,
                  .runs = 1};
  opened.tuning = tuning;
  return opened;
}

}  // namespace

const DeviceType kEmulatedCudaDevices = {
    .name = kEmulatedGpuDevice,
    .text =
        "cuda-emulated: the GPU's kernels on an emulator, very slow, for tests; "
        "cuda-emulated-75, -80, -86, -89 or -120 refuses what GPUs of that compute capability "
        "refuse",
    .takes = [](std::string_view device) { return EmulatedCapability(device) > 0; },
    .open = &Open};

int EmulatedCapability(std::string_view device) {
  if (device == kEmulatedGpuDevice) return 90;
  for (const int capability : kernels::cuda::kEmulatedCapabilities) {
    if (device == StrCat(kEmulatedGpuDevice, "-", capability)) return capability;
  }
  return 0;
}

}  // namespace tessera::worker

#include "worker/worker_device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/ops.h"
#include "third_party/linux/cpu_share.h"
#include "third_party/spdlog/log.h"
#include "worker/device_share.h"
#include "worker/engine/state_cache_size.h"

namespace tessera::worker {
namespace {

// Without --memory: the emulator writes all memory that it gives, so a pool of half the machine's
// would take long and be there in full.
constexpr int64_t kEmulatedMemoryBytes = int64_t{1} << 30;

// For tests: the emulated GPU faults, once and for all, as soon as this file is there.
constexpr const char* kFaultFile = "CUDA_EMULATOR_FAULT_FILE";

bool FaultFileIsThere() { return access(std::getenv(kFaultFile), F_OK) == 0; }

// Threads of gRPC and the engine stay on the worker's cores too, so that neighbours keep theirs.
void StayOn(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    Logger("worker").warn("cannot confine the process to its cores; only the compute threads are");
  }
}

absl::Status MakeCpu(const WorkerOptions& options, const DeviceShare& share, WorkerDevice* made) {
  const auto isa = kernels::ParseIsa(options.cpu_isa);
  if (!isa.ok()) return isa.status();
  auto device = kernels::CreateCpuDevice({.cores = share.cores,
                                          .memory_bytes = share.memory_bytes,
                                          .isa = *isa,
                                          .cores_shared = share.cores_shared});
  if (!device.ok()) return device.status();
  made->device = *std::move(device);
  made->info.set_kind("cpu");
  made->info.set_kernel_path(std::string(Name(*isa)));
  made->look = {.buffer_bytes = int64_t{128} << 20, .runs = 2};
  return absl::OkStatus();
}

absl::Status MakeEmulated(const WorkerOptions& options, const DeviceShare& share,
                          WorkerDevice* made) {
  const int64_t memory_bytes = options.memory_bytes > 0
                                   ? share.memory_bytes
                                   : std::min(share.memory_bytes, kEmulatedMemoryBytes);
  kernels::cuda::emulated::Injection injection;
  injection.memory_bytes = memory_bytes;
  if (std::getenv(kFaultFile) != nullptr) injection.fails_now = &FaultFileIsThere;
  kernels::cuda::emulated::Inject(injection);
  kernels::cuda::emulated::SetCapability(EmulatedCapability(options.device));
  auto device = kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = memory_bytes});
  if (!device.ok()) return device.status();
  Logger("worker").warn(
      "--device {}: an emulator runs the GPU's kernels on one core, far slower than the "
      "CPU's own kernels; it is for tests",
      options.device);
  made->device = *std::move(device);
  made->info.set_kind(std::string(kEmulatedDevice));
  made->info.set_kernel_path("mma");
  made->look = {.buffer_bytes = int64_t{1} << 20, .reads_weights = true, .runs = 1};
  made->probe = {.buffer_bytes = int64_t{1} << 20,
                 .reads_weights = true,
                 .matrix_size = 64,
                 .rows = 8,
                 .runs = 1};
  return absl::OkStatus();
}

absl::Status MakeGpu(const WorkerOptions& options, const GpuOpener& open_gpu, WorkerDevice* made) {
  auto opened = open_gpu(options.device, options.memory_bytes, options.gpu_memory_utilization);
  if (!opened.ok()) return opened.status();
  made->device = std::move(opened->device);
  made->info = std::move(opened->info);
  made->info.set_kernel_path(opened->kernel_path);
  made->memory_is_ours = true;
  made->look = made->probe = kernels::kGpuProbe;
  if (options.cpus.empty()) made->cores = NearCores(made->cores, opened->near_cores);
  return absl::OkStatus();
}

absl::Status MakeDevice(const WorkerOptions& options, const DeviceShare& share,
                        const GpuOpener& open_gpu, WorkerDevice* made) {
  if (options.device == "cpu") return MakeCpu(options, share, made);
  if (EmulatedCapability(options.device) > 0) return MakeEmulated(options, share, made);
  return MakeGpu(options, open_gpu, made);
}

}  // namespace

absl::StatusOr<WorkerDevice> MakeWorkerDevice(const WorkerOptions& options,
                                              const GpuOpener& open_gpu) {
  const std::vector<int> affinity = AffinityCores();
  const bool gpu = options.device.starts_with(kGpuPrefix);
  // --memory of a GPU's worker is the GPU's.
  const auto share = ChooseDeviceShare(options.cpus, gpu ? 0 : options.memory_bytes, affinity,
                                       ReadCpuShare(affinity));
  if (!share.ok()) return share.status();
  if (!share->warning.empty()) Logger("worker").warn("{}", share->warning);
  WorkerDevice made;
  made.cores = share->cores;
  if (absl::Status status = MakeDevice(options, *share, open_gpu, &made); !status.ok())
    return status;
  StayOn(made.cores);
  if (!gpu && ReadCpuShare(made.cores).memory_bytes > 0) {  // else nothing says how much there is
    made.memory_left = [cores = made.cores] { return ReadCpuShare(cores).available_bytes; };
  }
  int64_t free_bytes = ReadCpuShare(made.cores).available_bytes;
  if (!gpu) free_bytes = std::min(free_bytes, made.device->memory_bytes());
  made.state_cache_bytes = StateCacheBytes(options.state_cache_memory_bytes, free_bytes);
  made.info.set_description(made.device->Describe());
  made.info.set_memory_bytes(made.device->memory_bytes());
  made.info.mutable_cores()->Add(made.cores.begin(), made.cores.end());
  if (made.info.data_types().empty()) {
    made.info.add_data_types(v1::DATA_TYPE_FLOAT32);
    if (made.device->ops().ComputesIn(kernels::DType::kF16)) {
      made.info.add_data_types(v1::DATA_TYPE_FLOAT16);
    }
    if (made.device->ops().ComputesIn(kernels::DType::kBF16)) {
      made.info.add_data_types(v1::DATA_TYPE_BFLOAT16);
    }
    made.info.add_data_types(v1::DATA_TYPE_INT8);
  }
  return made;
}

}  // namespace tessera::worker

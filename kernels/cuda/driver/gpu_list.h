// The GPUs that a process may use, as the driver and NVML describe them, and which of them a worker
// can use; where there are none, why.
//
// Thread rule: pure functions of the tables and their arguments. They initialise the driver, which
// reads CUDA_VISIBLE_DEVICES then and never again. Units: bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/driver/driver_tables.h"

namespace tessera::kernels::cuda {

// CUDA 13.0, which is that of driver 580.
inline constexpr int kMinCudaVersion = 13000;
// Turing.
inline constexpr int kMinNvidiaCapability = 75;

struct Gpu {
  int index = -1;      // the driver's; -1: a MIG slice that it shows only to a process that asks
  std::string device;  // for --device: "cuda:0", or "cuda:MIG-..." where index is -1
  std::string name;    // the driver's: "NVIDIA RTX A6000", "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
  std::string uuid;    // "GPU-...", "MIG-..."
  std::string bus_id;  // "0000:41:00.0"; empty where index is -1
  int capability = 0;  // 90 is 9.0
  int multiprocessors = 0;  // 0 where index is -1
  int64_t memory_bytes = 0;
  bool exclusive = false;  // one process alone may use it at a time
  std::string problem;     // why no worker can use it; empty: one can
};

struct GpuList {
  std::vector<Gpu> gpus;       // in the driver's order, then further MIG slices
  std::string driver_version;  // "580.65.06"; without NVML "CUDA 13.0"; empty: no driver
  std::string no_gpus;         // why `gpus` is empty
};

// `visible`: CUDA_VISIBLE_DEVICES of this process, or null where it is not set.
GpuList ListGpus(const DriverTables& tables, const char* visible);

// By "cuda:INDEX" or "cuda:UUID", a UUID also by its first digits. NotFound says what there is;
// FailedPrecondition why the GPU cannot be used.
absl::StatusOr<Gpu> FindGpu(const GpuList& list, std::string_view device);

// For a `device` that is a MIG slice: CUDA_VISIBLE_DEVICES with which the driver shows it, to be
// set before the driver is initialised; for others empty. InvalidArgument where `visible` leaves
// the slice out.
absl::StatusOr<std::string> VisibleSlice(std::string_view device, const char* visible);

struct GpuMemory {
  int64_t free_bytes = 0, total_bytes = 0;
};

// Takes the GPU for this process, as the runtime does at the first call, and keeps it.
// FailedPrecondition: another process has it; ResourceExhausted: no memory for a context. Both name
// the processes that use it where NVML knows them.
absl::StatusOr<GpuMemory> TakeGpu(const DriverTables& tables, const Gpu& gpu);

// Bytes that a worker may use of a GPU: `utilization` (0..1] of it, less what others use.
// ResourceExhausted where nothing is left.
absl::StatusOr<int64_t> UsableBytes(const Gpu& gpu, const GpuMemory& memory, double utilization);

}  // namespace tessera::kernels::cuda

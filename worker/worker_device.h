// The device that --device names: a GPU, a share of this machine's CPU, or the emulated CUDA
// device, which runs the GPU's kernels on one core, far slower than the CPU's own, for tests.
//
// Thread rule: called once, from the main thread, before others start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/probe.h"
#include "proto/coordinator.pb.h"
#include "worker/gpu_device.h"
#include "worker/worker_options.h"

namespace tessera::worker {

struct WorkerDevice {
  std::unique_ptr<kernels::Device> device;
  v1::DeviceInfo info;     // for registration; what is measured is not there yet
  std::vector<int> cores;  // that the process stays on
  // Bytes that the machine can still give to anybody, for memory that is the host's. Null: the
  // device's own count is all.
  std::function<int64_t()> memory_left;
  int64_t state_cache_bytes = 0;  // of host memory, for states of prompts
  bool memory_is_ours = false;    // its memory serves nothing but this worker
  bool computes_nothing = false;  // emulated: it has no rates
  kernels::ProbeOptions look;     // of its memory, at the start
  kernels::ProbeOptions probe;    // of all its rates, where a user asks for a profile
};

// OpenGpu, or what stands for it in tests.
using GpuOpener = std::function<absl::StatusOr<OpenedGpu>(
    const std::string& device, int64_t memory_bytes, double utilization)>;

// Confines the process to its cores too. InvalidArgument names the flag that cannot be had;
// errors of a GPU say why it cannot be used.
absl::StatusOr<WorkerDevice> MakeWorkerDevice(const WorkerOptions& options,
                                              const GpuOpener& open_gpu = OpenGpu);

}  // namespace tessera::worker

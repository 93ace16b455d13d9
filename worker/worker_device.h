// The device that --device names: a share of this machine's CPU, or the emulated CUDA device, which
// runs the GPU's kernels on one core, far slower than the CPU's own, for tests.
//
// Thread rule: called once, from the main thread, before others start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/probe.h"
#include "worker/worker_options.h"

namespace tessera::worker {

struct WorkerDevice {
  std::unique_ptr<kernels::Device> device;
  std::string kind;             // for registration, as in coordinator.proto
  std::string kernel_path;      // likewise
  std::vector<int> cores;       // that the process stays on
  kernels::ProbeOptions look;   // of its memory, at the start
  kernels::ProbeOptions probe;  // of all its rates, where a user asks for a profile
};

// Confines the process to its cores too. InvalidArgument names the flag that cannot be had.
absl::StatusOr<WorkerDevice> MakeWorkerDevice(const WorkerOptions& options);

}  // namespace tessera::worker

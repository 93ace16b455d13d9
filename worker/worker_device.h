// The device that --device names, as a worker has it: with the cores that its process stays on and
// the memory that the machine has beside it.
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
#include "kernels/tuning_table.h"
#include "proto/coordinator.pb.h"
#include "worker/devices/device_type.h"

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
  std::shared_ptr<kernels::TuningTable> tuning;  // as of OpenedDevice
};

// Confines the process to its cores too. InvalidArgument names the flag that cannot be had;
// errors of the type say why its device cannot be used.
absl::StatusOr<WorkerDevice> MakeWorkerDevice(const DeviceFlags& flags, const DeviceType& type);

}  // namespace tessera::worker

// What `tessera-worker --list-devices` prints: the GPUs that a worker could use, or why there are
// none.
//
// Thread rule: pure functions, but for MakeDeviceList, which reads sysfs.
#pragma once

#include <string>

#include "kernels/cuda/driver/gpu_list.h"
#include "proto/coordinator.pb.h"

namespace tessera::worker {

// Facts for a registration: all but what is measured, and the share of its memory and of the cores.
v1::DeviceInfo DescribeGpu(const kernels::cuda::Gpu& gpu, const std::string& driver_version);

// `build_problem`: why this build cannot use GPUs at all; empty: it can. `root` is "/" but in
// tests.
v1::DeviceList MakeDeviceList(const kernels::cuda::GpuList& gpus, const std::string& build_problem,
                              const std::string& root = "/");

// A table for people; the CPU and the emulator, which are always there, are named below it.
std::string DeviceListText(const v1::DeviceList& list);
std::string DeviceListJson(const v1::DeviceList& list);

}  // namespace tessera::worker

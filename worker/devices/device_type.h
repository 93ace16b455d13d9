// A type of device that a worker can compute on: how --device names it, how its devices are listed,
// and how one is opened. worker/device_types.cc has the table; all else of a type that workers need
// is in a folder of its own. What plans need of it: docs/adding.md, "A maker of GPUs".
//
// Thread rule: from the main thread, before others start: opening may set the environment of this
// process. Units: bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/probe.h"
#include "kernels/tuning_table.h"
#include "proto/coordinator.pb.h"
#include "proto/device_names.h"
#include "worker/devices/device_share.h"

namespace tessera::worker {

// The flags that say which device, and how much of it.
struct DeviceFlags {
  std::string name = std::string(kCpuDevice);  // --device
  std::string cpus = {};         // "0-3,8"; empty: all that affinity and control group allow
  std::string cpu_isa = "auto";  // kernel path
  int64_t memory_bytes = 0;      // 0: what limits and the machine allow; a card's: the share below
  double gpu_memory_utilization = 0.9;  // of a card's memory, what others use included
  bool mapped_sums = true;              // ranks of one machine meet in pinned memory
  // Where what is measured of a card is kept; empty: the user's cache folder, of an emulated one
  // nowhere; kNoTuning: nothing is measured to be kept.
  std::string tuning_folder = {};
  std::string build_version = {};  // of this program, whose measurements hold for no other build
  int64_t state_cache_memory_bytes = -1;  // negative: StateCacheBytes (engine/state_cache_size.h)
};

inline constexpr std::string_view kNoTuning = "none";

struct OpenedDevice {
  std::unique_ptr<kernels::Device> device;
  v1::DeviceInfo info;          // for registration; MakeWorkerDevice adds what all devices say
  std::vector<int> near_cores;  // of its NUMA node; empty: not known
  kernels::ProbeOptions look;   // of its memory, at the start
  kernels::ProbeOptions probe;  // of all its rates, where a user asks for a profile
  // What is kept of it from start to start, the device's too; null: nothing.
  std::shared_ptr<kernels::TuningTable> tuning = nullptr;
};

struct DeviceType {
  // --device itself; with a colon at its end, what is before the name of one device.
  std::string_view name;
  // For --help and refusals: the names that --device takes, and what such a device is.
  std::string_view text = {};
  // A card: its memory is its own, --memory speaks of it, and cores near it serve it.
  bool has_own_memory = false;
  // Whether `device`, which is the name, or begins with it and a dash or its colon, names one.
  bool (*takes)(std::string_view device) = nullptr;
  // Appends the cards of this machine, or says why there are none. Null: one is always there.
  void (*list)(v1::DeviceList* list) = nullptr;
  // `share`: of the host's memory and cores. Errors name the device and what to do. Null: devices
  // of the type compute nothing, and one process has several (worker/emulated_workers).
  absl::StatusOr<OpenedDevice> (*open)(const DeviceFlags& flags,
                                       const DeviceShare& share) = nullptr;
};

}  // namespace tessera::worker

// The devices of this machine that a cluster description's or a plan's kinds ask for, where
// --devices names none: what was planned for a GPU never runs on a CPU unasked.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/device_choice.h"
#include "deploy/local_workers.h"
#include "proto/coordinator.pb.h"

namespace tessera::deploy {

// Whether one of the workers is for something else than a CPU.
bool NeedDevices(const std::vector<LocalWorker>& workers);

// A line for each kind that names neither a CPU nor a known GPU: its workers compute on CPUs.
std::vector<std::string> OnCpuNotes(const std::vector<LocalWorker>& workers);

// Takes out the workers of kinds that none runs on, where there are others; by kind.
std::map<std::string, int> LeaveOutUnsupported(std::vector<LocalWorker>* workers);

// One for each worker, in their order: GPUs of the same kind, by index, CPUs where the kind is one.
// FailedPrecondition, naming `file` and the kinds, where this machine does not have them.
absl::StatusOr<std::vector<DeviceChoice>> DevicesOfKinds(const std::string& file,
                                                         const std::vector<LocalWorker>& workers,
                                                         const v1::DeviceList& gpus);

}  // namespace tessera::deploy

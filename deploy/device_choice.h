// The devices of this machine that `tessera up --devices` names, one worker each.
//
// Thread rule: ChooseDevices is pure; AskForDevices starts tessera-worker --list-devices and waits
// for it, a minute at most, or two where it measures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/coordinator.pb.h"

namespace tessera::deploy {

struct DeviceChoice {
  std::string device;           // for tessera-worker --device
  std::vector<int> near_cores;  // of a GPU's NUMA node; empty: not known, or no GPU
  v1::ListedDevice gpu = {};    // as it is listed; empty: no GPU
};

// Whether `devices` (--devices) names GPUs, so that a list of them is needed.
bool NamesGpus(std::string_view devices);

// "cuda:0,cpu": devices between commas; "all" is every GPU that can be used. InvalidArgument for
// what is no device, NotFound where a GPU is not there, FailedPrecondition where it cannot be used;
// each with the reason.
absl::StatusOr<std::vector<DeviceChoice>> ChooseDevices(std::string_view devices,
                                                        const v1::DeviceList& gpus);

// `bin_dir`: of tessera-worker; empty: beside this program. `measure`: each GPU too, which must not
// serve meanwhile.
absl::StatusOr<v1::DeviceList> AskForDevices(const std::string& bin_dir, bool measure = false);

}  // namespace tessera::deploy

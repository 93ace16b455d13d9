#include "worker/devices/device_share.h"

#include <algorithm>
#include <iterator>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

absl::StatusOr<std::vector<int>> NamedCores(std::string_view cpus,
                                            const std::vector<int>& affinity) {
  auto cores = ParseCpuList(cpus);
  if (!cores.ok()) {
    return absl::InvalidArgumentError(StrCat("--cpus: ", StdView(cores.status().message())));
  }
  std::vector<int> foreign;
  for (const int core : *cores) {
    if (std::find(affinity.begin(), affinity.end(), core) == affinity.end()) {
      foreign.push_back(core);
    }
  }
  if (foreign.empty()) return cores;
  return absl::InvalidArgumentError(StrCat("--cpus ", cpus, ": this process may not use core",
                                           foreign.size() > 1 ? "s " : " ", CpuList(foreign),
                                           "; its affinity mask and control group allow ",
                                           CpuList(affinity), " (see taskset -cp $$)"));
}

absl::Status CheckMemory(int64_t memory_bytes, int64_t available_bytes) {
  const std::string there = StrCat("control group and machine allow ", available_bytes, " (",
                                   available_bytes >> 20, "MiB)");
  if (memory_bytes < kMinMemoryBytes) {
    return absl::InvalidArgumentError(StrCat("--memory is ", memory_bytes,
                                             " bytes; a worker needs at least ", kMinMemoryBytes,
                                             " (", kMinMemoryBytes >> 20, "MiB), ", there));
  }
  // Where nothing says how much there is, the flag is all that is known.
  if (available_bytes > 0 && memory_bytes > available_bytes) {
    return absl::InvalidArgumentError(StrCat("--memory is ", memory_bytes, " bytes; ", there,
                                             ": ask for less, or raise the limit"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceShare> ChooseDeviceShare(std::string_view cpus, int64_t memory_bytes,
                                              const std::vector<int>& affinity,
                                              const CpuShare& available) {
  DeviceShare share;
  share.cores = available.cores;
  if (!cpus.empty()) {
    auto named = NamedCores(cpus, affinity);
    if (!named.ok()) return named.status();
    share.cores = *std::move(named);
    if (share.cores.size() > available.cores.size()) {
      share.warning = StrCat(
          "--cpus names ", share.cores.size(), " cores, but the control group's CPU quota allows ",
          available.cores.size(), ": the kernel will throttle threads during steps");
    }
  }
  share.cores_shared = cpus.empty() || share.cores.size() == 1;
  share.memory_bytes = memory_bytes != 0 ? memory_bytes : available.memory_bytes;
  absl::Status status = CheckMemory(share.memory_bytes, available.memory_bytes);
  if (!status.ok()) return status;
  return share;
}

std::vector<int> NearCores(const std::vector<int>& cores, const std::vector<int>& near) {
  std::vector<int> both;
  std::set_intersection(cores.begin(), cores.end(), near.begin(), near.end(),
                        std::back_inserter(both));
  return both.empty() ? cores : both;
}

}  // namespace tessera::worker

// Memory that a device's runtime takes for itself, where nobody says how much: context, libraries,
// fragmentation. A worker on a CPU takes none: its buffers come out of the memory that it was
// given, and are charged one by one (scheduler/cost/allocations); so do those of the emulated GPU.
// Thread rule: pure functions.
#pragma once

#include <string_view>

#include "proto/cluster.pb.h"

namespace tessera::scheduler {

inline constexpr double kUsualRuntimeReserveBytes = 1073741824.0;

// Whether a kind is a CPU: "cpu", as `tessera plan init` and workers name it, or a name that begins
// so ("cpu-12mib").
bool IsCpuKind(std::string_view name);

// Whether a device of this kind has no runtime that takes memory: a CPU, or the emulated GPU.
bool HasNoRuntime(std::string_view kind);

// Bytes per device: 0 where no device of the cluster has a runtime.
double RuntimeReserveBytes(const v1::Cluster& cluster);

}  // namespace tessera::scheduler

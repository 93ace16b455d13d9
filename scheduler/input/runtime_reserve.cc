#include "scheduler/input/runtime_reserve.h"

#include <cctype>

namespace tessera::scheduler {

bool IsCpuKind(std::string_view name) {
  constexpr std::string_view kCpu = "cpu";
  if (name.size() < kCpu.size()) return false;
  for (size_t i = 0; i < kCpu.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(name[i])) != kCpu[i]) return false;
  }
  return name.size() == kCpu.size() ||
         std::isalnum(static_cast<unsigned char>(name[kCpu.size()])) == 0;
}

bool HasNoRuntime(std::string_view kind) { return IsCpuKind(kind) || kind == "cuda-emulated"; }

double RuntimeReserveBytes(const v1::Cluster& cluster) {
  for (const v1::Machine& machine : cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices()) {
      if (!HasNoRuntime(group.kind())) return kUsualRuntimeReserveBytes;
    }
  }
  return cluster.machines().empty() ? kUsualRuntimeReserveBytes : 0;
}

}  // namespace tessera::scheduler

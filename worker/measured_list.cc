#include "worker/measured_list.h"

#include <algorithm>
#include <string>

namespace tessera::worker {
namespace {

// Less than a worker's share, so that a display or another process on the card is no problem.
constexpr double kUtilization = 0.8;

absl::StatusOr<kernels::DeviceRates> Measure(const GpuOpener& open_gpu,
                                             const kernels::ProbeOptions& probe,
                                             const std::string& device) {
  auto opened = open_gpu(device, 0, kUtilization);
  if (!opened.ok()) return opened.status();
  return kernels::ProbeDevice(*opened->device, probe);
}

}  // namespace

void MeasureListed(const GpuOpener& open_gpu, const kernels::ProbeOptions& probe,
                   v1::DeviceList* list) {
  for (v1::ListedDevice& device : *list->mutable_devices()) {
    if (!device.problem().empty()) continue;
    const auto rates = Measure(open_gpu, probe, device.device());
    if (!rates.ok()) {
      device.set_problem(std::string(rates.status().message()));
      continue;
    }
    device.mutable_info()->set_memory_read_bytes_per_second(rates->read_bytes_per_second);
    device.set_half_flops_per_second(rates->bf16_flops_per_second);
  }
}

}  // namespace tessera::worker

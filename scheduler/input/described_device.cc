#include "scheduler/input/described_device.h"

#include "scheduler/input/runtime_reserve.h"

namespace tessera::scheduler {

bool Measures(const v1::MeasuredProfile& profile) {
  return profile.memory_read_bytes_per_second() > 0 || profile.prefill_efficiency() > 0 ||
         profile.decode_efficiency() > 0 || profile.step_overhead_seconds() > 0 ||
         profile.kv_codec_bytes_per_second() > 0;
}

DeviceSpec DescribedDevice(const v1::DeviceKind& kind, const v1::DeviceGroup& group) {
  DeviceSpec spec;
  spec.kind = kind.name();
  spec.memory_bytes =
      static_cast<double>(group.memory_bytes() > 0 ? group.memory_bytes() : kind.memory_bytes());
  spec.memory_bytes_per_second = kind.memory_bandwidth_bytes_per_second();
  spec.flops_per_second = kind.dense_flops_per_second();
  spec.compute_efficiency =
      kind.prefill_efficiency() > 0 ? kind.prefill_efficiency() : kDefaultComputeEfficiency;
  spec.memory_efficiency =
      kind.decode_efficiency() > 0 ? kind.decode_efficiency() : kDefaultMemoryEfficiency;
  spec.layer_overhead_seconds = kind.layer_overhead_seconds();
  spec.hides_decode = IsCpuKind(kind.name());
  spec.estimated = kind.efficiency_source().empty();
  if (!group.has_profile()) return spec;
  const v1::MeasuredProfile& profile = group.profile();
  if (profile.memory_read_bytes_per_second() > 0) {
    spec.memory_bytes_per_second = profile.memory_read_bytes_per_second();
    spec.memory_efficiency = 1;
  }
  if (profile.prefill_efficiency() > 0) spec.compute_efficiency = profile.prefill_efficiency();
  if (profile.decode_efficiency() > 0) spec.memory_efficiency = profile.decode_efficiency();
  spec.kv_codec_bytes_per_second = profile.kv_codec_bytes_per_second();
  if (profile.step_overhead_seconds() > 0) {
    spec.step_overhead_seconds = profile.step_overhead_seconds();
    spec.layer_overhead_seconds = 0;
  }
  const bool memory = profile.memory_read_bytes_per_second() > 0 || profile.decode_efficiency() > 0;
  if (memory && profile.prefill_efficiency() > 0) spec.estimated = false;
  return spec;
}

}  // namespace tessera::scheduler

#include "scheduler/planner/advice/assumption_changes.h"

#include <algorithm>
#include <cmath>

#include "scheduler/planner/report/cluster_links.h"

namespace tessera::scheduler {
namespace {

// Efficiencies multiply peaks everywhere in the cost model, so scaling the peaks is the same and
// holds for measured profiles as well.
void ScaleDevices(double by, PlannerInput* input) {
  const auto scale = [by](v1::DeviceKind* kind) {
    kind->set_dense_flops_per_second(kind->dense_flops_per_second() * by);
    kind->set_memory_bandwidth_bytes_per_second(kind->memory_bandwidth_bytes_per_second() * by);
  };
  for (v1::DeviceKind& kind : *input->catalogue.mutable_kinds()) scale(&kind);
  for (v1::DeviceKind& kind : *input->cluster.mutable_kinds()) scale(&kind);
  for (v1::Machine& machine : *input->cluster.mutable_machines()) {
    for (v1::DeviceGroup& group : *machine.mutable_devices()) {
      if (!group.has_profile()) continue;
      v1::MeasuredProfile& profile = *group.mutable_profile();
      profile.set_memory_read_bytes_per_second(profile.memory_read_bytes_per_second() * by);
      for (v1::ProductRate& product : *profile.mutable_products())
        product.set_read_bytes_per_second(product.read_bytes_per_second() * by);
    }
  }
}

void ScaleOutputs(double by, PlannerInput* input) {
  for (v1::WorkloadClass& one : *input->workload.mutable_classes()) {
    for (v1::LengthSample& sample : *one.mutable_lengths())
      sample.set_output_tokens(
          std::max<int64_t>(1, std::llround(static_cast<double>(sample.output_tokens()) * by)));
  }
  for (TraceRequest& request : input->trace)
    request.output_tokens = std::max(1.0, std::round(request.output_tokens * by));
}

void ScaleLinks(double by, PlannerInput* input) {
  for (const DescribedLink& one : LinksOf(&input->cluster))
    one.link->set_bandwidth_bytes_per_second(one.link->bandwidth_bytes_per_second() * by);
  const auto scale = [by](v1::DeviceKind* kind) {
    if (!kind->has_peer_link()) return;
    kind->mutable_peer_link()->set_bandwidth_bytes_per_second(
        kind->peer_link().bandwidth_bytes_per_second() * by);
  };
  for (v1::DeviceKind& kind : *input->catalogue.mutable_kinds()) scale(&kind);
  for (v1::DeviceKind& kind : *input->cluster.mutable_kinds()) scale(&kind);
}

}  // namespace

std::vector<AssumptionChange> AssumptionChanges() {
  std::vector<AssumptionChange> changes;
  const auto add = [&](v1::Assumed assumed, double factor, void (*scale)(double, PlannerInput*)) {
    changes.push_back({assumed, factor, [=](PlannerInput* input) { scale(factor, input); }});
  };
  for (const double factor : {0.9, 1.1}) add(v1::ASSUMED_EFFICIENCIES, factor, ScaleDevices);
  for (const double factor : {0.8, 1.2}) add(v1::ASSUMED_OUTPUTS, factor, ScaleOutputs);
  for (const double factor : {0.7, 1.3}) add(v1::ASSUMED_LINKS, factor, ScaleLinks);
  return changes;
}

}  // namespace tessera::scheduler

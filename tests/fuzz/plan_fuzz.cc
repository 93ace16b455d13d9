// Any text as plan.json: an error that names something, or a plan that the checker accepts; and
// what it accepts covers what it promises.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "proto/document.h"
#include "proto/layers/layers.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/plan_file.h"

namespace {

constexpr std::string_view kCluster = R"(
machines:
- {name: a, site: x, devices: [{kind: T4, count: 2}], uplink: {bandwidth: 1 Gbit/s}}
- {name: b, site: x, devices: [{kind: L40}]}
- {name: c, site: y, devices: [{kind: T4, count: 2}], inside: {bandwidth: 10 GB/s}}
sites: [{name: y, uplink: {bandwidth: 2 Gbit/s}}]
tiers: {machine: {bandwidth: 5 GB/s}, site: {bandwidth: 10 Gbit/s}, region: {bandwidth: 1 Gbit/s}}
)";

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckOnCluster(const tessera::v1::DeploymentPlan& plan) {
  static const auto* const cluster = [] {
    auto* read = new tessera::v1::Cluster;
    Require(tessera::ReadDocument(kCluster, "cluster", read).ok());
    return read;
  }();
  static const auto* const catalogue =
      new tessera::v1::DeviceCatalogue(tessera::scheduler::BuiltInDevices().value());
  const absl::Status status = tessera::scheduler::CheckPlanOn(plan, *cluster, *catalogue);
  Require(status.ok() ||
          (status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto plan =
      tessera::scheduler::ParsePlan({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!plan.ok()) {
    Require(plan.status().code() == absl::StatusCode::kInvalidArgument);
    Require(!plan.status().message().empty());
    return 0;
  }
  CheckOnCluster(*plan);
  Require(tessera::LayerCount(plan->model()) > 0);
  for (const auto& replica : plan->replicas()) {
    Require(!replica.stages().empty());
    std::int64_t reached = 0;
    for (const auto& stage : replica.stages()) {
      Require(!stage.workers().empty());
      std::int64_t columns = 0;
      for (const auto& worker : stage.workers()) {
        const auto& share = worker.share();
        Require(share.layers().begin() == reached && share.layers().end() > reached);
        Require(share.kinds_size() == plan->model().kinds_size());
        Require(share.kinds(0).kv_heads().begin() >= 0 &&
                share.kinds(0).kv_heads().end() <= plan->model().kinds(0).attention().kv_heads());
        columns += share.kinds(0).ffn_columns().end() - share.kinds(0).ffn_columns().begin();
      }
      Require(columns == plan->model().kinds(0).ffn().width());
      reached = stage.workers(0).share().layers().end();
    }
    Require(reached == tessera::LayerCount(plan->model()));
  }
  return 0;
}

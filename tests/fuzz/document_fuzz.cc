// Any text as a description of a cluster, a workload, a model catalogue or a plan: an error that
// names something, or a message that the planner's own readers accept or refuse without harm.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "proto/cluster.pb.h"
#include "proto/document.h"
#include "proto/model.pb.h"
#include "proto/plan.pb.h"
#include "proto/workload.pb.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/plan_check/plan_check.h"
#include "tests/fakes/uniform_model.h"

namespace {

using tessera::ReadDocument;

void Require(bool holds) {
  if (!holds) std::abort();
}

bool Refused(const absl::Status& status) {
  if (status.ok()) return false;
  Require(status.code() == absl::StatusCode::kInvalidArgument);
  Require(!status.message().empty());
  return true;
}

bool NotNegative(double value) { return std::isfinite(value) && value >= 0; }

void ReadAsCluster(std::string_view text) {
  static const auto* const catalogue =
      new tessera::v1::DeviceCatalogue(tessera::scheduler::BuiltInDevices().value());
  tessera::v1::Cluster cluster;
  if (Refused(ReadDocument(text, "fuzzed", &cluster))) return;
  const auto graph = tessera::scheduler::MakeClusterGraph(cluster, *catalogue, "fuzzed");
  tessera::v1::DeploymentPlan plan;  // of no replica
  tessera::tests::SetLayers({.layers = 1}, plan.mutable_model());
  (void)Refused(tessera::scheduler::CheckPlanOn(plan, cluster, *catalogue));
  if (Refused(graph.status())) return;
  Require(graph->devices() > 0 && NotNegative(graph->budget_usd_per_hour()));
  for (const auto& pool : graph->pools()) {
    Require(pool.count > 0 && NotNegative(pool.price_usd_per_hour));
    Require(pool.spec->memory_bytes > 0 && pool.spec->flops_per_second > 0);
    Require(pool.spec->memory_bytes_per_second > 0 && pool.spec->compute_efficiency > 0);
    Require(NotNegative(pool.spec->layer_overhead_seconds));
  }
  const int machines = static_cast<int>(graph->machines().size());
  for (int i = 0; i < machines; ++i) {
    for (int j = 0; j < machines; ++j) {
      if (i == j) continue;
      Require(graph->Between(i, j).bytes_per_second > 0);
      Require(NotNegative(graph->Between(i, j).latency_seconds));
    }
  }
}

void ReadAsWorkload(std::string_view text) {
  tessera::v1::Workload workload;
  if (Refused(ReadDocument(text, "fuzzed", &workload))) return;
  const auto samples = tessera::scheduler::SamplesOf(workload, {}, 4096, "fuzzed");
  if (Refused(samples.status())) return;
  double sum = 0;
  for (const auto& sample : samples->samples) {
    Require(sample.prompt_tokens >= 1 && sample.output_tokens >= 1);
    Require(sample.prompt_tokens + sample.output_tokens <= 4096.5);
    sum += sample.weight;
  }
  Require(std::abs(sum - 1) < 1e-6);
  Require(NotNegative(samples->requests_per_second) && samples->arrival_variation > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ReadAsCluster(text);
  ReadAsWorkload(text);
  tessera::v1::ModelCatalogue models;
  (void)Refused(ReadDocument(text, "fuzzed", &models));
  tessera::v1::DeploymentPlan plan;
  if (!Refused(ReadDocument(text, "fuzzed", &plan))) {
    (void)Refused(tessera::scheduler::CheckPlan(plan));
  }
  return 0;
}

#include "tests/scheduler/search/best/mixed_cloud.h"

#include <catch2/catch.hpp>
#include <utility>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/search/layout/assemble.h"

namespace tessera::tests {

MixedCloud::MixedCloud() {
  v1::Cluster cluster;
  REQUIRE(ReadDocumentFile("deploy/clusters/mixed_cloud_32.yaml", &cluster).message() == "");
  graph =
      *scheduler::MakeClusterGraph(cluster, *scheduler::BuiltInDevices(), "mixed_cloud_32.yaml");
  v1::Workload workload;
  REQUIRE(ReadDocumentFile("deploy/workloads/azure_conversation.yaml", &workload).message() == "");
  const auto samples = scheduler::SamplesOf(workload, {}, 4096, "azure_conversation.yaml");
  REQUIRE(samples.ok());
  scheduler::RequestClass all;
  all.name = "all";
  all.samples = samples->samples;
  all.limits.ttft_seconds = 3;
  all.limits.tpot_seconds = 0.15;
  all.required_attainment = 0.9;
  problem.model = &model;
  problem.graph = &graph;
  problem.samples = all.samples;
  problem.classes = {all};
  problem.goal = scheduler::Goal::kGoodput;
}

scheduler::Placement PlacementOfParts(const MixedCloud& cloud, scheduler::GroupLayouts* groups,
                                      scheduler::GoodputColumns* columns) {
  columns->OfferAlone();
  absl::StatusOr<scheduler::Placement> alone =
      Assemble(cloud.problem, columns->program().Pack(false), groups->judge());
  REQUIRE(alone.status().message() == "");
  return *std::move(alone);
}

}  // namespace tessera::tests

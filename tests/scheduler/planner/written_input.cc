#include "tests/scheduler/planner/written_input.h"

#include <catch2/catch.hpp>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"

namespace tessera::tests {

scheduler::PlannerInput WrittenInput(const std::string& cluster, const std::string& model,
                                     const std::string& workload) {
  scheduler::PlannerInput input;
  input.cluster_file = "c.yaml";
  input.workload_file = "w.yaml";
  REQUIRE(ReadDocument(cluster, input.cluster_file, &input.cluster).message() == "");
  REQUIRE(ReadDocument(workload, input.workload_file, &input.workload).message() == "");
  input.catalogue = *scheduler::BuiltInDevices();
  input.model = *scheduler::BuiltInModel(model);
  return input;
}

}  // namespace tessera::tests

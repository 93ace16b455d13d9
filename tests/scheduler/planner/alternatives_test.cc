#include <catch2/catch.hpp>

#include "scheduler/planner/planner.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

v1::DeploymentPlan PlanOn(const std::string& cluster, const std::string& model,
                          PlannerOptions options = {}) {
  const auto plan = MakePlan(tests::WrittenInput(cluster, model), options);
  REQUIRE(plan.status().message() == "");
  return *plan;
}

std::string LineWith(const v1::DeploymentPlan& plan, const std::string& start) {
  for (const std::string& line : plan.alternatives()) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

double ValueOf(const std::string& line) {
  const size_t at = line.find(": ");
  REQUIRE(at != std::string::npos);
  return std::stod(line.substr(at + 2));
}

constexpr char kMixed[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 2}]}
- {name: c, devices: [{kind: T4, count: 3}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

TEST_CASE("one kind, equal stages and splitting stand beside a plan, and none of them is better") {
  const auto plan = PlanOn(kMixed, "Llama-3-8B");
  const double value = plan.prediction().requests_per_second() * (1 + 1e-6);
  const std::string one = LineWith(plan, "one kind of device, the best of them A40"),
                    equal = LineWith(plan, "equal stages of equal width everywhere"),
                    split = LineWith(plan, "every replica only prefills or only decodes");
  CHECK(ValueOf(one) > 0);
  CHECK(ValueOf(one) < value);
  CHECK(ValueOf(equal) >= ValueOf(one));
  CHECK(ValueOf(equal) <= value);
  CHECK(ValueOf(split) > 0);
  CHECK(ValueOf(split) <= value);
  CHECK_THAT(one, Catch::Contains("of 7 devices, the weakest limited by "));
  const std::string overlapping = LineWith(plan, "holders of overlapping layers");
  CHECK(ValueOf(overlapping) > 0);
  CHECK_THAT(overlapping, Catch::EndsWith("(heuristic, no bound)"));  // holders only where they win
  PlannerOptions whole;
  whole.allow_split = false;
  CHECK(LineWith(PlanOn(kMixed, "Llama-3-8B", whole), "every replica only") == "");
}

TEST_CASE("one device: why there is no split value is said") {
  const auto plan = PlanOn("machines: [{name: a, devices: [{kind: A40}]}]", "Llama-3-8B");
  CHECK_THAT(LineWith(plan, "every replica only prefills or only decodes"),
             Catch::Contains(": none, it needs two replicas that each hold the model"));
  CHECK(LineWith(plan, "one kind") == "");  // there is only one
  CHECK_THAT(LineWith(plan, "holders of overlapping layers"), Catch::Contains(": none, no such"));
}

TEST_CASE("many devices: that none were made is said") {
  const auto plan =
      PlanOn("machines: [{name: a, devices: [{kind: A40, count: 65}]}]", "Llama-3-8B");
  CHECK_THAT(plan.alternatives(0), Catch::Contains("more than 64 devices"));
}

}  // namespace
}  // namespace tessera::scheduler

// A trace is planned with in buckets: what comes of it serves, in simulation, what a plan of the
// whole trace does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "scheduler/input/length_buckets.h"
#include "scheduler/planner/planner.h"
#include "scheduler/search/searches.h"
#include "scheduler/simulator/goodput.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr int kRequests = 1200;
constexpr char kCluster[] = R"(
machines:
- {name: a, devices: [{kind: A40, count: 2}]}
- {name: b, devices: [{kind: L4, count: 2}]}
- {name: c, devices: [{kind: T4, count: 2}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

// Lengths of conversations, all of them unlike.
PlannerInput Input() {
  PlannerInput input = tests::WrittenInput(
      kCluster, "Llama-3-8B",
      "{trace: trace.csv, objectives: {time_to_first_token: 4 s, time_per_output_token: 150 ms}}");
  std::mt19937 random(7);
  std::lognormal_distribution<double> prompts(std::log(700.0), 0.9), answers(std::log(120.0), 0.8);
  for (int i = 0; i < kRequests; ++i) {
    input.trace.push_back({static_cast<double>(i),
                           std::round(std::min(6000.0, 1 + prompts(random))),
                           std::round(std::min(1500.0, 1 + answers(random)))});
  }
  input.workload.set_requests_per_second(100);  // more than it serves
  input.workload.set_arrival_variation(1);
  return input;
}

class Trace {
 public:
  Trace()
      : input_(Input()),
        graph_(*MakeClusterGraph(input_.cluster, input_.catalogue, "cluster")),
        all_(*SamplesOf(input_.workload, input_.trace, input_.model.max_positions(), "workload")) {
    REQUIRE(all_.samples.size() > 4 * kMaxBuckets);
    REQUIRE(Bucketed(all_).samples.size() <= kMaxBuckets + 1);
  }

  v1::DeploymentPlan PlanFor(Goal goal, bool whole) const {
    PlannerOptions options;
    options.goal = goal;
    options.simulate = false;
    const Search search = *FindSearch("best");
    options.given_search = [&, whole](const PlacementProblem& bucketed) {
      PlacementProblem problem = bucketed;
      if (whole) {
        problem.samples = all_.samples;
        problem.classes = all_.classes;
      }
      return search(problem);
    };
    auto plan = MakePlan(input_, options);
    REQUIRE(plan.status().message() == "");
    return *std::move(plan);
  }

  // What the whole trace gets of it at most, in time where that is the goal.
  double Served(const v1::DeploymentPlan& plan, Goal goal, double most) const {
    const auto replicas = ReplicasOfPlan(plan, graph_, {});
    REQUIRE(replicas.ok());
    GoodputQuestion question;
    question.replicas = &*replicas;
    question.classes = &all_.classes;
    question.requests = 6000;
    if (goal == Goal::kGoodput) return *SimulatedGoodputUpTo(question, 0, most);
    const auto result = SimulateAt(question, most);
    REQUIRE(result.ok());
    return ReportOf(*result).steady_requests_per_second;
  }

 private:
  const PlannerInput input_;
  const ClusterGraph graph_;
  const WorkloadSamples all_;
};

TEST_CASE("a plan of buckets serves what a plan of the whole trace does, within 2 %") {
  const Trace trace;
  for (const Goal goal : {Goal::kThroughput, Goal::kGoodput}) {
    INFO("goal " << static_cast<int>(goal));
    const v1::DeploymentPlan whole = trace.PlanFor(goal, true);
    const v1::DeploymentPlan buckets = trace.PlanFor(goal, false);
    const double most = 1.3 * std::max(whole.prediction().requests_per_second(),
                                       buckets.prediction().requests_per_second());
    const double of_whole = trace.Served(whole, goal, most);
    const double of_buckets = trace.Served(buckets, goal, most);
    INFO(of_whole << " and " << of_buckets << " requests/s");
    CHECK(of_whole > 0.5 * whole.prediction().requests_per_second());
    CHECK(of_buckets >= 0.98 * of_whole);
  }
}

}  // namespace
}  // namespace tessera::scheduler

#include "scheduler/planner/survival.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>

#include "absl/strings/str_format.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/outlook_text.h"
#include "scheduler/planner/report/plan_diff.h"
#include "scheduler/planner/report/plan_table.h"
#include "scheduler/planner/request/plan_request.h"
#include "scheduler/search/layout/assemble.h"
#include "scheduler/search/layout/goodput.h"
#include "scheduler/search/searches.h"
#include "tests/scheduler/planner/written_input.h"
#include "tests/scheduler/search/every_layout.h"
#include "tests/scheduler/search/layout_enumerator.h"

namespace tessera::scheduler {
namespace {

using namespace tests;  // NOLINT: the oracle
using Catch::Contains;

// Of the devices of a problem's pools, the best layout's.
using RateOfDevices = std::function<double(const LayoutProblem&)>;

// Every way to deal devices to replicas of role both, each with the best layout of its devices;
// judged by what the worst machine leaves.
class EveryDeal {
 public:
  EveryDeal(LayoutProblem problem, RateOfDevices rate)
      : problem_(std::move(problem)), rate_of_(std::move(rate)) {
    for (const LayoutPool& pool : problem_.pools) counts_.push_back(pool.count);
    lost_.assign(8, 0);
  }

  double Best() {
    Deal(counts_, counts_);
    return best_;
  }

 private:
  // Sets come in falling order, so that every deal is seen once.
  void Deal(const std::vector<int>& left, const std::vector<int>& last) {
    double worst = total_;
    for (const double lost : lost_) worst = std::min(worst, total_ - lost);
    best_ = std::max(best_, worst);
    std::vector<int> part = left;
    do {
      if (part > last) continue;
      const double rate = Rate(part);
      if (rate <= 0) continue;
      std::vector<int> rest = left;
      for (size_t i = 0; i < rest.size(); ++i) rest[i] -= part[i];
      std::vector<int> machines;
      for (size_t i = 0; i < part.size(); ++i) {
        if (part[i] > 0) machines.push_back(problem_.pools[i].machine);
      }
      std::sort(machines.begin(), machines.end());
      machines.erase(std::unique(machines.begin(), machines.end()), machines.end());
      total_ += rate;
      for (const int m : machines) lost_[static_cast<size_t>(m)] += rate;
      Deal(rest, part);
      for (const int m : machines) lost_[static_cast<size_t>(m)] -= rate;
      total_ -= rate;
    } while (Previous(left, &part));
  }

  static bool Previous(const std::vector<int>& counts, std::vector<int>* part) {
    for (size_t i = part->size(); i-- > 0;) {
      if (--(*part)[i] >= 0) return true;
      (*part)[i] = counts[i];
    }
    return false;
  }

  double Rate(const std::vector<int>& part) {
    const auto known = rate_.find(part);
    if (known != rate_.end()) return known->second;
    LayoutProblem problem = problem_;
    int devices = 0;
    for (size_t i = 0; i < part.size(); ++i) devices += problem.pools[i].count = part[i];
    return rate_[part] = devices == 0 ? 0 : rate_of_(problem);
  }

  LayoutProblem problem_;
  RateOfDevices rate_of_;
  std::vector<int> counts_;
  std::vector<double> lost_;  // by machine
  double total_ = 0, best_ = 0;
  std::map<std::vector<int>, double> rate_;
};

PlacementProblem WholeReplicas(const LayoutInstance& instance, const RequestLengths& lengths) {
  PlacementProblem problem;
  problem.model = &instance.model;
  problem.graph = &instance.graph;
  problem.samples = {lengths};
  problem.options = instance.problem.options;
  problem.allow_split = false;
  return problem;
}

TEST_CASE("on small clusters as much survives as in any deal of the devices") {
  int surviving = 0, changed = 0;
  for (int seed = 3001; seed < 3041; seed += 2) {
    INFO("seed " << seed);
    LayoutInstance instance;
    MakeLayoutInstance(seed, 5, 8, &instance);
    instance.model.layers = 4;  // devices hold more than a share: several replicas
    const RequestLengths lengths = {500.0 + 10 * (seed % 7), 100, 1};
    instance.problem.role = Role::kBoth;
    instance.problem.lengths = MomentsOf({&lengths, 1});
    const double best = EveryDeal(instance.problem, [](const LayoutProblem& devices) {
                          return EnumerateLayouts(devices).requests_per_second;
                        }).Best();
    const PlacementProblem problem = WholeReplicas(instance, lengths);
    const Search search = *FindSearch("best");
    const absl::StatusOr<Placement> found = SurvivingSearch(search)(problem);
    REQUIRE(found.ok() == (best > 0));
    if (!found.ok()) {
      CHECK((found.status().code() == absl::StatusCode::kResourceExhausted));
      continue;
    }
    ++surviving;
    const double survives = LossesOf(problem, *found).front().requests_per_second;
    CHECK(survives == Approx(best).epsilon(1e-6));
    CHECK(found->upper_bound >= survives * (1 - 1e-9));
    const absl::StatusOr<Placement> plain = search(problem);
    REQUIRE(plain.ok());
    const double by_chance = LossesOf(problem, *plain).front().requests_per_second;
    CHECK(survives >= by_chance * (1 - 1e-9));
    changed += survives > by_chance * (1 + 1e-6) ? 1 : 0;
  }
  CHECK(surviving >= 5);
  CHECK(changed >= 1);
}

TEST_CASE("on small clusters the goodput that survives is that of the best deal of the devices") {
  int surviving = 0, limited = 0;
  double least = 1, sum = 0;
  for (int seed = 3001; seed < 3041; seed += 2) {
    INFO("seed " << seed);
    LayoutInstance instance;
    MakeLayoutInstance(seed, 5, 8, &instance);
    instance.model.layers = 4;
    const RequestLengths lengths = {500.0 + 10 * (seed % 7), 100, 1};
    instance.problem.role = Role::kBoth;
    instance.problem.lengths = MomentsOf({&lengths, 1});
    PlacementProblem problem = WholeReplicas(instance, lengths);
    // Limits that bind: of what replicas of the best plan without limits take.
    const absl::StatusOr<Placement> unlimited = (*FindSearch("best"))(problem);
    if (!unlimited.ok()) continue;
    const ReplicaRate& usual = unlimited->replicas.front().rate;
    RequestClass all;
    all.share = 1;
    all.samples = {lengths};
    all.limits.tpot_seconds = 1.2 * usual.tpot_seconds;
    all.limits.ttft_seconds = 20 * usual.period_seconds;
    all.required_attainment = 0.9;
    problem.classes = {all};
    problem.goal = Goal::kGoodput;
    problem.options.max_tpot_seconds = all.limits.tpot_seconds;
    ReplicaJudge judge(problem);
    const double best = EveryDeal(instance.problem, [&](const LayoutProblem& devices) {
                          double most = 0;
                          ForEveryLayout(devices, [&](const std::vector<LayoutStage>& stages) {
                            const ReplicaRate rate = judge.RateOf(ReplicaOf(devices, stages));
                            most = std::max(most, rate.requests_per_second);
                          });
                          return most;
                        }).Best();
    const absl::StatusOr<Placement> found = SurvivingSearch(*FindSearch("best"))(problem);
    if (best <= 0) {
      CHECK((found.status().code() == absl::StatusCode::kResourceExhausted));
      continue;
    }
    REQUIRE(found.status().message() == "");
    ++surviving;
    const double survives = LossesOf(problem, *found).front().requests_per_second;
    CHECK(survives <= best * (1 + 1e-6));
    CHECK(found->upper_bound >= best * (1 - 1e-9));
    sum += survives / best;
    least = std::min(least, survives / best);
    limited += found->requests_per_second < 0.95 * unlimited->requests_per_second ? 1 : 0;
  }
  CHECK(surviving >= 5);
  CHECK(limited >= 3);
  CHECK(least >= 0.95);
  CHECK(sum >= 0.99 * surviving);
}

PlannerInput Input(const std::string& cluster, const std::string& model) {
  return tests::WrittenInput(cluster, model);
}

constexpr char kThree[] = R"(
machines:
- {name: m0, devices: [{kind: L4, count: 2}]}
- {name: m1, devices: [{kind: A100-40}]}
- {name: m2, devices: [{kind: A100-40}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)";

PlannerOptions MustSurvive() {
  PlannerOptions options;
  options.survive_machine_loss = true;
  return options;
}

TEST_CASE("a plan says what survives, is judged by it, and plan_check recomputes it") {
  const PlannerInput input = Input(kThree, "Llama-3-8B");
  const auto plan = MakePlan(input, MustSurvive());
  REQUIRE(plan.status().message() == "");
  const double survives = plan->survival().requests_per_second();
  CHECK(survives > 0);
  CHECK(survives < plan->prediction().requests_per_second());
  CHECK(plan->certificate().value() == survives);
  CHECK(plan->certificate().upper_bound() >= survives);
  const std::string beside =
      absl::StrFormat("up to %.3f requests/s (%.3f after the loss of any one machine), ",
                      plan->prediction().requests_per_second(), survives);
  CHECK_THAT(PlanTable(*plan).substr(0, PlanTable(*plan).find('\n')), Contains(beside));
  CHECK_THAT(PlanTable(*plan), Contains("survives the loss of any machine with ") &&
                                   Contains("; worst: m") &&
                                   Contains("must survive the loss of any one machine = yes"));
  v1::DeploymentPlan lies = *plan;
  lies.mutable_survival()->set_requests_per_second(survives * 1.01);
  CHECK_THAT(std::string(CheckPlan(lies).message()), Contains("are promised when any machine"));
  lies = *plan;
  lies.mutable_survival()->set_worst_machine("elsewhere");
  CHECK_THAT(std::string(CheckPlan(lies).message()), Contains("no replica uses machine"));
  const auto plain = MakePlan(input, {});
  REQUIRE(plain.ok());
  CHECK_FALSE(plain->has_survival());
  CHECK_THAT(PlanTable(*plain), Contains("must survive the loss of any one machine = no") &&
                                    !Contains("after the loss of any one machine)"));
  const auto row = [](double from, double to) {
    return absl::StrFormat("  %-28s %14.3f %14.3f", "  after a machine's loss", from, to);
  };
  CHECK_THAT(PlanDiff(*plan, *plan, "now", "then"), Contains(row(survives, survives)));
  CHECK_THAT(PlanDiff(*plain, *plain, "now", "then"),
             !Contains("after a machine's loss") && !Contains("attained in simulation"));
  v1::DeploymentPlan refuted = *plain;
  refuted.mutable_simulated()->set_attained_requests_per_second(0.5);
  CHECK_THAT(
      PlanDiff(*plain, refuted, "now", "then"),
      Contains(absl::StrFormat("  %-28s %14s %14.3f\n", "  attained in simulation", "-", 0.5)));
}

TEST_CASE("a plan for goodput says what survives within the limits") {
  PlannerOptions options = MustSurvive();
  options.goal = Goal::kGoodput;
  PlannerInput input = Input(kThree, "Llama-3-8B");
  input.workload.mutable_objectives()->set_time_to_first_token_seconds(1);
  input.workload.mutable_objectives()->set_time_per_output_token_seconds(0.05);
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const double survives = plan->survival().requests_per_second();
  CHECK(survives > 0);
  CHECK(plan->certificate().value() == survives);
  // What serves most may not do so in time.
  const auto most = MakePlan(input, MustSurvive());
  REQUIRE(most.status().message() == "");
  CHECK(survives < most->survival().requests_per_second());
  CHECK_THAT(PlanTable(*plan),
             Contains("survives the loss of any machine with ") &&
                 Contains("within their limits after the loss of a machine at most: the gap"));
}

TEST_CASE("what is left of split replicas is shared anew within the limits") {
  v1::Cluster cluster;
  for (const char* name : {"p0", "p1", "d0", "d1"}) {
    v1::Machine& machine = *cluster.add_machines();
    machine.set_name(name);
    machine.add_devices()->set_kind("L40S");
  }
  cluster.mutable_tiers()->mutable_site()->set_bandwidth_bytes_per_second(50e9);
  cluster.mutable_tiers()->mutable_site()->set_latency_seconds(1e-5);
  const auto graph = MakeClusterGraph(cluster, *BuiltInDevices(), "cluster");
  REQUIRE(graph.ok());
  const auto model = MakeModelShape(*BuiltInModel("Llama-3-8B"), v1::DATA_TYPE_UNSPECIFIED,
                                    v1::DATA_TYPE_UNSPECIFIED);
  REQUIRE(model.ok());
  PlacementProblem problem;
  problem.model = &*model;
  problem.graph = &*graph;
  problem.samples = {{1000, 200, 1}};
  RequestClass all;
  all.samples = problem.samples;
  all.limits.ttft_seconds = 1;
  all.limits.tpot_seconds = 0.05;
  all.required_attainment = 0.9;
  problem.classes = {all};
  problem.goal = Goal::kGoodput;
  problem.options.max_tpot_seconds = all.limits.tpot_seconds;
  std::vector<PlacedReplica> replicas(4);
  for (int i = 0; i < 4; ++i) {
    PlacedReplica& replica = replicas[static_cast<size_t>(i)];
    replica.role = i < 2 ? Role::kPrefill : Role::kDecode;
    replica.stages = {{i, 1, 32}};
  }
  const auto whole = Assemble(problem, replicas);
  REQUIRE(whole.status().message() == "");
  REQUIRE(whole->requests_per_second > 0);
  const std::vector<MachineLoss> losses = LossesOf(problem, *whole);
  REQUIRE(losses.size() == 4);
  for (const MachineLoss& loss : losses) {
    std::vector<PlacedReplica> left = replicas;
    left.erase(left.begin() + loss.machine);
    const auto again = Assemble(problem, left);
    REQUIRE(again.ok());
    CHECK(again->requests_per_second > 0);
    CHECK(loss.requests_per_second == Approx(again->requests_per_second).epsilon(1e-4));
    CHECK(loss.requests_per_second < whole->requests_per_second);
    for (const Share& share : loss.shares)
      CHECK((share.prefill != loss.machine && share.decode != loss.machine));
  }
}

TEST_CASE("where everything depends on one machine, it is named") {
  const auto alone = MakePlan(
      Input("machines: [{name: only, devices: [{kind: A100-40, count: 2}]}]", "Llama-3-8B"),
      MustSurvive());
  REQUIRE(alone.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(alone.status().message()),
             Contains("no plan survives the loss of machine only: it is the only one"));
  const auto needed = MakePlan(Input(R"(
machines:
- {name: small, devices: [{kind: T4}]}
- {name: big, devices: [{kind: A100-80, count: 4}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}
)",
                                     "Llama-2-70B"),
                               MustSurvive());
  REQUIRE(needed.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(needed.status().message()),
             Contains("no plan survives the loss of machine big") && Contains("GiB"));
}

TEST_CASE("the cheapest plan whose rate survives, and the best within a budget") {
  PlannerInput input = Input(R"(
budget: 3 USD/h
machines:
- {name: big, available: 3, price: 1.2 USD/h, devices: [{kind: A100-40}]}
- {name: small, available: 4, price: 0.5 USD/h, devices: [{kind: L4}]}
tiers: {site: {bandwidth: 10 Gbit/s, latency: 60 us}}
)",
                             "Llama-3-8B");
  PlannerOptions options = MustSurvive(), plain;
  options.goal = plain.goal = Goal::kPrice;
  input.workload.set_requests_per_second(0.8);
  const auto cheap = MakePlan(input, options), careless = MakePlan(input, plain);
  REQUIRE(cheap.status().message() == "");
  REQUIRE(careless.ok());
  CHECK(cheap->survival().requests_per_second() >= 0.8 * (1 - 1e-6));
  CHECK(cheap->certificate().value() > careless->certificate().value());
  input.workload.set_requests_per_second(0);
  options.goal = Goal::kBudget;
  const auto within = MakePlan(input, options);
  REQUIRE(within.status().message() == "");
  CHECK(within->survival().requests_per_second() > 0);
  input.workload.set_requests_per_second(1e3);
  options.goal = Goal::kPrice;
  CHECK(MakePlan(input, options).status().code() == absl::StatusCode::kResourceExhausted);
}

// Machines of A40s, each of which holds a replica.
std::string PriceOfOneMore(const std::string& machines) {
  const auto plan = MakePlan(
      Input("machines:\n" + machines + "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n",
            "Llama-3-8B"),
      MustSurvive());
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->device_prices_size() == 1);
  return DevicePriceLines(*plan)[0];
}

TEST_CASE("one more device is worth what is left more of when any machine is lost") {
  const std::string two = ", devices: [{kind: A40, count: 2}]}\n";
  // Beside two in each machine the third goes with the worst loss.
  CHECK_THAT(PriceOfOneMore("- {name: a" + two + "- {name: b" + two),
             Contains("one more A40 in a machine that has some would bring nothing"));
  CHECK_THAT(PriceOfOneMore("- {name: a" + two + "- {name: b" + two +
                            "- {name: c, devices: [{kind: A40}]}\n"),
             Contains("one more A40 in a machine that has some is worth ") &&
                 Contains(" requests/s after the loss of a machine (estimate: "));
}

TEST_CASE("a request over the network asks for it by the same name") {
  v1::PlanRequest request;
  const PlannerInput input = Input(kThree, "Llama-3-8B");
  *request.mutable_cluster() = input.cluster;
  *request.mutable_workload() = input.workload;
  request.set_survive_machine_loss(true);
  const auto reply = AnswerPlanRequest(request, input.model, {});
  REQUIRE(reply.status().message() == "");
  CHECK(reply->plan().survival().requests_per_second() > 0);
}

}  // namespace
}  // namespace tessera::scheduler

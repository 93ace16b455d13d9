// Another plan applied while one is in force. The coordinator's parts are the real ones, workers
// are fakes that register and are configured over gRPC on loopback.
#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/replicate.h"
#include "tests/coordinator/fake_cluster.h"
#include "tests/coordinator/staged_plan.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

// One replica on each: r-a/0, r-b/0, ...
v1::DeploymentPlan PlanOn(const std::vector<std::string>& devices) {
  std::vector<scheduler::DeviceOffer> offers;
  for (const std::string& device : devices) offers.push_back({device, 1 << 30});
  return scheduler::OneReplicaPerDevice(SmallModel(), offers);
}

v1::PlannedWorker& WorkerOf(v1::DeploymentPlan* plan, int replica) {
  return *plan->mutable_replicas(replica)->mutable_stages(0)->mutable_workers(0);
}

// Workers a/0 and b/0 that serve a plan; c/0 is there too, idle.
struct Two : FakeCluster {
  explicit Two(const std::function<void(DeploymentOptions&)>& adjust = nullptr)
      : FakeCluster(PlanOn({"a/0", "b/0"}), 300, 300, adjust) {
    for (const char* name : {"a/0", "b/0", "c/0"}) Add(name);
    REQUIRE(WaitReady(2));
    REQUIRE(WaitState("c/0", v1::WORKER_STATE_REGISTERED, "idle"));
  }

  std::future<absl::StatusOr<v1::ApplyPlanReply>> Begin(v1::DeploymentPlan plan) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<v1::ApplyPlanReply>>>();
    deployment().Apply({std::move(plan)}, [answer](auto reply) { answer->set_value(reply); });
    return answer->get_future();
  }
  absl::StatusOr<v1::ApplyPlanReply> End(std::future<absl::StatusOr<v1::ApplyPlanReply>> begun) {
    REQUIRE(
        Wait([&] { return begun.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    return begun.get();
  }
  absl::StatusOr<v1::ApplyPlanReply> Apply(v1::DeploymentPlan plan) {
    return End(Begin(std::move(plan)));
  }

  // A request that the worker runs.
  std::shared_ptr<StreamReader> AskUntilAt(const std::string& name, int32_t max_tokens) {
    const int64_t before = worker(name).running();
    std::shared_ptr<StreamReader> reader;
    for (int i = 0; i < 4 && worker(name).running() == before; ++i) {
      reader = Ask(max_tokens);
      REQUIRE(Wait([&] { return !reader->ids().empty(); }));
    }
    REQUIRE(worker(name).running() > before);
    return reader;
  }
  bool WaitEnded(const StreamReader& reader) {
    return Wait([&] { return reader.ended(); });
  }
};

// Nothing is lost, doubled or out of order.
void CheckTokens(const StreamReader& reader, int32_t count) {
  CHECK(reader.status().message() == "");
  const std::vector<int32_t> ids = reader.ids();
  REQUIRE(ids.size() == static_cast<size_t>(count));
  for (size_t i = 0; i < ids.size(); ++i) REQUIRE(ids[i] == FakeToken(static_cast<int64_t>(i)));
}

}  // namespace

TEST_CASE("routes alone: no worker hears of it, and requests go the new ways at once") {
  Two cluster;
  v1::DeploymentPlan plan = PlanOn({"a/0", "b/0"});
  plan.mutable_routing(0)->set_share(0);
  plan.mutable_routing(1)->set_share(1);
  const auto reply = cluster.Apply(plan);
  REQUIRE(reply.status().message() == "");
  CHECK(reply->routes());
  CHECK(reply->plan_epoch() == cluster.Describe().plan_epoch());
  for (const v1::AppliedReplica& replica : reply->replicas())
    CHECK(replica.change() == v1::REPLICA_CHANGE_KIND_KEEP);
  for (const char* name : {"a/0", "b/0"}) {
    CHECK(cluster.worker(name).configures() == 1);
    CHECK(cluster.worker(name).sessions() == 1);
  }
  std::vector<std::shared_ptr<StreamReader>> readers;
  for (int i = 0; i < 6; ++i) readers.push_back(cluster.Ask(200));
  REQUIRE(cluster.Wait([&] { return cluster.worker("b/0").running() == 6; }));
  CHECK(cluster.worker("a/0").running() == 0);
}

TEST_CASE(
    "a flip drains the replica and configures it again with the same share; others serve on") {
  Two cluster;
  const std::shared_ptr<StreamReader> at_b = cluster.AskUntilAt("b/0", 60);
  const std::shared_ptr<StreamReader> at_a = cluster.AskUntilAt("a/0", 100);
  const v1::ConfigureRequest before = cluster.worker("b/0").configured();
  v1::DeploymentPlan plan = PlanOn({"a/0", "b/0"});
  plan.mutable_replicas(1)->set_micro_batches(1);
  const auto reply = cluster.Apply(plan);
  REQUIRE(reply.status().message() == "");
  // It waited for what was under way there.
  CHECK(at_b->ended());
  CheckTokens(*at_b, 60);
  CHECK(reply->replicas(0).change() == v1::REPLICA_CHANGE_KIND_KEEP);
  CHECK(reply->replicas(1).change() == v1::REPLICA_CHANGE_KIND_FLIP);
  CHECK(reply->replicas(1).drain_seconds() > 0);
  CHECK(reply->replicas(1).ready_seconds() > 0);
  CHECK(cluster.worker("b/0").configures() == 2);
  v1::ConfigureRequest after = cluster.worker("b/0").configured();
  CHECK(after.micro_batches() == 1);
  CHECK(after.fence().plan_epoch() > before.fence().plan_epoch());
  after.set_micro_batches(before.micro_batches());
  *after.mutable_fence() = before.fence();
  CHECK(after.SerializeAsString() == before.SerializeAsString());
  CHECK(cluster.worker("a/0").configures() == 1);
  CHECK(cluster.worker("a/0").sessions() == 1);
  REQUIRE(cluster.WaitEnded(*at_a));
  CheckTokens(*at_a, 100);
  CHECK(cluster.Describe().replicas_size() == 2);
}

TEST_CASE("only replicas that differ are rebuilt, and what left the plan is idle") {
  Two cluster;
  v1::DeploymentPlan plan = PlanOn({"a/0", "c/0"});
  const auto reply = cluster.Apply(plan);
  REQUIRE(reply.status().message() == "");
  REQUIRE(reply->replicas_size() == 3);
  CHECK(reply->replicas(1).name() == "r-c/0");
  CHECK(reply->replicas(1).change() == v1::REPLICA_CHANGE_KIND_REBUILD);
  CHECK(reply->replicas(2).name() == "r-b/0");
  CHECK(reply->replicas(2).change() == v1::REPLICA_CHANGE_KIND_DROP);
  CHECK(cluster.worker("a/0").configures() == 1);
  CHECK(cluster.worker("b/0").configures() == 1);
  CHECK(cluster.worker("c/0").configures() == 1);
  CHECK(cluster.Status("c/0").replica() == "r-c/0");
  CHECK(cluster.Wait([&] { return cluster.Status("b/0").detail().starts_with("idle"); }));
  CHECK(cluster.Status("b/0").replica().empty());
  // With a pool of another size it is rebuilt in its place.
  WorkerOf(&plan, 1).set_kv_bytes(1 << 20);
  CHECK(cluster.Apply(plan)->replicas(1).change() == v1::REPLICA_CHANGE_KIND_REBUILD);
  CHECK(cluster.worker("c/0").configures() == 2);
  CHECK(cluster.worker("c/0").configured().kv_cache_bytes() == 1 << 20);
}

TEST_CASE("a replica that goes does not wait for ever: its requests go on elsewhere") {
  Two cluster([](DeploymentOptions& options) { options.drain_seconds = 0.3; });
  const std::shared_ptr<StreamReader> at_b = cluster.AskUntilAt("b/0", 250);
  const auto reply = cluster.Apply(PlanOn({"a/0"}));
  REQUIRE(reply.status().message() == "");
  CHECK_FALSE(at_b->ended());
  REQUIRE(cluster.WaitEnded(*at_b));
  CheckTokens(*at_b, 250);
}

TEST_CASE("a plan that does not come up leaves the one before") {
  Two cluster;
  const std::shared_ptr<StreamReader> at_a = cluster.AskUntilAt("a/0", 150);
  cluster.worker("c/0").FailConfigures(absl::ResourceExhaustedError("no room"));
  v1::DeploymentPlan plan = PlanOn({"a/0", "b/0", "c/0"});
  plan.mutable_replicas(1)->set_micro_batches(1);
  const auto reply = cluster.Apply(plan);
  CHECK(absl::IsAborted(reply.status()));
  CHECK_THAT(std::string(reply.status().message()),
             Contains("the one before is in force again: replica r-c/0: worker c/0 could not be "
                      "configured: no room"));
  CHECK(cluster.Describe().plan().replicas_size() == 2);
  REQUIRE(cluster.WaitReady(2));
  CHECK(cluster.worker("b/0").configured().micro_batches() == 0);
  CHECK(cluster.worker("a/0").configures() == 1);
  REQUIRE(cluster.WaitEnded(*at_a));
  CheckTokens(*at_a, 150);
  // Where it can be carried out it is.
  cluster.worker("c/0").FailConfigures(absl::OkStatus());
  CHECK(cluster.Apply(plan).status().message() == "");
  CHECK(cluster.WaitReady(3));
}

TEST_CASE("one plan at a time") {
  Two cluster;
  cluster.worker("c/0").HoldConfigures();
  auto first = cluster.Begin(PlanOn({"a/0", "b/0", "c/0"}));
  REQUIRE(cluster.Wait([&] { return cluster.worker("c/0").configures() == 1; }));
  const absl::Status second = cluster.Apply(PlanOn({"a/0"})).status();
  CHECK(absl::IsFailedPrecondition(second));
  CHECK_THAT(std::string(second.message()), Contains("another plan is being applied"));
  CHECK(cluster.Describe().applying() == "forming r-c/0");
  cluster.worker("c/0").Release();
  CHECK(cluster.End(std::move(first)).status().message() == "");
  CHECK(cluster.Describe().applying().empty());
  CHECK(cluster.Apply(PlanOn({"a/0"})).status().message() == "");
}

TEST_CASE("a plan that cannot be carried out is refused before anything changes") {
  Two cluster;
  const uint64_t epoch = cluster.Describe().plan_epoch();
  const auto refusal = [&](const v1::DeploymentPlan& plan) {
    return std::string(cluster.Apply(plan).status().message());
  };
  CHECK_THAT(refusal(PlanOn({"a/0", "d/0"})), Contains("no worker named d/0 has registered"));
  v1::DeploymentPlan large = PlanOn({"a/0", "c/0"});
  WorkerOf(&large, 1).set_kv_bytes(int64_t{2} << 30);
  WorkerOf(&large, 1).set_available_bytes(int64_t{3} << 30);
  CHECK_THAT(refusal(large), Contains("bytes are missing"));
  v1::DeploymentPlan other = PlanOn({"a/0"});
  other.mutable_model()->set_hidden(128);
  CHECK_THAT(refusal(other), Contains("is served"));
  CHECK(cluster.Describe().plan_epoch() == epoch);
  CHECK(cluster.Describe().plan().replicas_size() == 2);
}

TEST_CASE("over one replica per worker, a plan is kept until the coordinator ends") {
  FakeCluster cluster(std::nullopt);
  cluster.Add("a/0");
  cluster.Add("b/0");
  REQUIRE(cluster.WaitReady(2));
  std::promise<absl::Status> applied;
  cluster.deployment().Apply({PlanOn({"b/0"})},
                             [&](const auto& reply) { applied.set_value(reply.status()); });
  CHECK(applied.get_future().get().message() == "");
  CHECK(cluster.WaitReady(1));
  CHECK(cluster.worker("b/0").configures() == 1);  // it stays as it was
  cluster.Add("c/0");
  CHECK(cluster.WaitState("c/0", v1::WORKER_STATE_REGISTERED, "idle"));
  CHECK(cluster.Describe().plan().replicas_size() == 1);
}

TEST_CASE("a worker that is gone for long is planned without") {
  int plans = 0;
  const auto planner = [&](const std::map<std::string, WorkerRecord>& workers)
      -> absl::StatusOr<v1::DeploymentPlan> {
    std::vector<std::string> live;
    for (const auto& [name, worker] : workers) {
      if (worker.state != v1::WORKER_STATE_LOST) live.push_back(name);
    }
    if (live.size() < (plans == 0 ? 3 : 2)) return absl::UnavailableError("");
    ++plans;
    return PlanOn(live);
  };
  FakeCluster cluster(std::nullopt, 300, 300, [&](DeploymentOptions& options) {
    options.source = PlannedForWorkers(planner, 1);
  });
  for (const char* name : {"a/0", "b/0", "c/0"}) cluster.Add(name);
  REQUIRE(cluster.WaitReady(3));
  cluster.Kill("b/0");
  CHECK(cluster.Wait([&] { return cluster.Describe().plan().replicas_size() == 2; }));
  CHECK(plans == 2);
  CHECK(cluster.WaitReady(2));
  for (const char* name : {"a/0", "c/0"}) CHECK(cluster.worker(name).configures() == 1);
}

}  // namespace tessera::coordinator

// Which worker of which replica is slow, and what status pages and metrics say of it.
#include "coordinator/deployment/straggler_watch.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "coordinator/deployment/worker_metrics.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

// Replica "alone" has one worker, "pair" two stages, "third" one.
struct Example {
  Example() {
    Add("alone", {"a/0"});
    Add("pair", {"b/0", "b/1"});
    Add("third", {"c/0"});
  }
  void Add(const std::string& name, const std::vector<std::string>& devices) {
    v1::Replica& replica = *plan.add_replicas();
    replica.set_name(name);
    for (const std::string& device : devices) {
      replica.add_stages()->add_workers()->set_device(device);
      workers[device];
    }
  }
  // A second of full work: steps of 10 ms, each stretched by the leader's factor, in which each
  // worker computes its part.
  void Second(const std::map<std::string, double>& stretch) {
    const auto of = [&](const std::string& name) {
      const auto found = stretch.find(name);
      return found == stretch.end() ? 1.0 : found->second;
    };
    now += 1;
    for (const v1::Replica& replica : plan.replicas()) {
      double step = 0;
      for (const v1::Stage& stage : replica.stages())
        step += 0.010 / replica.stages_size() * of(stage.workers(0).device());
      const double steps = 1 / step;
      for (const v1::Stage& stage : replica.stages()) {
        const std::string& device = stage.workers(0).device();
        v1::WorkerCounters& counters = workers[device].counters;
        counters.set_uptime_seconds(now);
        counters.set_busy_seconds(counters.busy_seconds() +
                                  steps * 0.010 / replica.stages_size() * of(device));
      }
      v1::EngineLoad& load = workers[replica.stages(0).workers(0).device()].load;
      load.set_steps(load.steps() + static_cast<uint64_t>(steps));
      load.set_generation_tokens(load.generation_tokens() + 4 * static_cast<uint64_t>(steps));
      load.set_decode_step_seconds(load.decode_step_seconds() + std::floor(steps) * step);
    }
    watch.Update(plan, workers, now);
  }
  double now = 1000;
  v1::DeploymentPlan plan;
  std::map<std::string, WorkerRecord> workers;
  StragglerWatch watch;
};

}  // namespace

TEST_CASE("a slow worker alone is named, and its replica says so") {
  Example e;
  for (int i = 0; i < 60; ++i) e.Second({});
  CHECK(e.watch.stragglers().empty());
  for (int i = 0; i < 6; ++i) e.Second({{"a/0", 4}});
  const std::vector<Straggler> slow = e.watch.stragglers();
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].replica == "alone");
  CHECK(slow[0].workers == std::vector<std::string>{"a/0"});
  CHECK(slow[0].factor > 3);
  CHECK(e.watch.factors().at("alone") == slow[0].factor);
  CHECK_THAT(Describe(slow[0]), Contains("slow: its steps take") && Contains("(worker a/0)") &&
                                    !Contains("tessera plan"));
  for (int i = 0; i < 60; ++i) e.Second({{"a/0", 4}});
  REQUIRE(e.watch.stragglers().size() == 1);
  CHECK_THAT(Describe(e.watch.stragglers()[0]), Contains("`tessera plan`"));
  for (int i = 0; i < 20; ++i) e.Second({});
  CHECK(e.watch.stragglers().empty());
}

TEST_CASE("of a replica of several workers the one that computes longer is named") {
  Example e;
  for (int i = 0; i < 60; ++i) e.Second({});
  for (int i = 0; i < 6; ++i) e.Second({{"b/1", 5}});
  const std::vector<Straggler> slow = e.watch.stragglers();
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].replica == "pair");
  CHECK(slow[0].workers == std::vector<std::string>{"b/1"});
}

TEST_CASE("/metrics has every replica's slowdown") {
  Example e;
  for (int i = 0; i < 60; ++i) e.Second({});
  for (int i = 0; i < 6; ++i) e.Second({{"a/0", 4}});
  v1::GetClusterReply cluster;
  cluster.set_model("demo");
  for (const v1::Replica& replica : e.plan.replicas())
    cluster.add_replicas()->set_name(replica.name());
  const std::string text =
      prometheus::TextSerializer().Serialize(SlownessFamilies(cluster, e.watch.stragglers()));
  CHECK_THAT(text, Contains("tessera_replica_slowdown{model_name=\"demo\",replica=\"pair\"} 1\n"));
  CHECK_THAT(text, !Contains("replica=\"alone\"} 1\n"));
}

}  // namespace tessera::coordinator

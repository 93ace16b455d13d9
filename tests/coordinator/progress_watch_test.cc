#include "coordinator/deployment/progress_watch.h"

#include <catch2/catch.hpp>

namespace tessera::coordinator {
namespace {

ReplicaProgress Replica(const std::string& name, uint64_t pulse, int64_t sequences,
                        int64_t prefilling = 0) {
  ReplicaProgress replica;
  replica.replica = name;
  replica.pulse = pulse;
  replica.sequences = sequences;
  replica.prefilling_sequences = prefilling;
  replica.worker = "w-" + name;
  return replica;
}

}  // namespace

TEST_CASE("a replica with work and no step for the timeout is named once, until it moves") {
  ProgressWatch watch(10);
  CHECK(watch.Update({Replica("a", 1, 2), Replica("b", 1, 1)}, 100).stalled.empty());
  CHECK(watch.Update({Replica("a", 1, 2), Replica("b", 2, 1)}, 109.9).stalled.empty());
  const auto changes = watch.Update({Replica("a", 1, 2), Replica("b", 3, 1)}, 110);
  REQUIRE(changes.stalled.size() == 1);
  CHECK(Describe(changes.stalled[0]) ==
        "replica a: no step for 10 s with 2 sequences in decode; worker w-a (stage 0, rank 0) is "
        "behind");
  CHECK(watch.Update({Replica("a", 1, 2), Replica("b", 4, 1)}, 115).stalled.empty());
  REQUIRE(watch.stalled().size() == 1);
  CHECK(watch.stalled()[0].seconds == Approx(15));
  CHECK(watch.Update({Replica("a", 2, 2), Replica("b", 5, 1)}, 116).moving ==
        std::vector<std::string>{"a"});
  CHECK(watch.stalled().empty());
  CHECK(watch.Update({Replica("a", 2, 2), Replica("b", 6, 1)}, 126).stalled.size() == 1);
}

TEST_CASE("being idle is not being stalled") {
  ProgressWatch watch(10);
  watch.Update({Replica("a", 1, 0)}, 100);
  CHECK(watch.Update({Replica("a", 1, 0)}, 200).stalled.empty());
  // Counted from when it got work.
  CHECK(watch.Update({Replica("a", 1, 1)}, 201).stalled.empty());
  CHECK(watch.Update({Replica("a", 1, 1)}, 209).stalled.empty());
  CHECK(watch.Update({Replica("a", 1, 1)}, 210.5).stalled.size() == 1);
}

TEST_CASE("a stuck replica stays stuck when its clients give up; a lost one is forgotten") {
  ProgressWatch watch(10);
  watch.Update({Replica("a", 1, 1, 1)}, 100);
  REQUIRE(watch.Update({Replica("a", 1, 1, 1)}, 110).stalled.size() == 1);
  CHECK(watch.Update({Replica("a", 1, 0)}, 120).moving.empty());
  REQUIRE(watch.stalled().size() == 1);
  CHECK(Describe(watch.stalled()[0]).find("20 s with 1 sequences in prefill") != std::string::npos);
  watch.Update({}, 121);
  CHECK(watch.stalled().empty());
  // Its successor begins afresh.
  CHECK(watch.Update({Replica("a", 1, 1)}, 122).stalled.empty());
}

TEST_CASE("a timeout of zero switches the watchdog off") {
  ProgressWatch watch(0);
  watch.Update({Replica("a", 1, 1)}, 0);
  CHECK(watch.Update({Replica("a", 1, 1)}, 1e9).stalled.empty());
  CHECK(watch.stalled().empty());
}

TEST_CASE("the rank that is behind is the one named, and every rank's step counts") {
  v1::DeploymentPlan plan;
  v1::Replica& planned = *plan.add_replicas();
  planned.set_name("r");
  planned.add_stages()->add_workers()->set_device("x");
  v1::Stage& second = *planned.add_stages();
  second.add_workers()->set_device("y");
  second.add_workers()->set_device("z");
  second.add_workers()->set_device("last");
  std::map<std::string, WorkerRecord> workers;
  workers["x"].load.set_steps(7);
  workers["y"].load.set_steps(7);
  workers["z"].load.set_steps(6);
  workers["last"].load.set_steps(7);
  ReplicaActivity activity;
  activity.replica = "r";
  activity.running_sequences = 3;
  activity.prefilling_sequences = 1;
  activity.messages = 5;
  const auto joined = JoinProgress(plan, workers, {activity});
  REQUIRE(joined.size() == 1);
  CHECK(joined[0].pulse == 32);
  CHECK(Describe({joined[0], 60}) ==
        "replica r: no step for 60 s with 3 sequences in prefill and decode; worker z (stage 1, "
        "rank 1) is behind");
}

}  // namespace tessera::coordinator

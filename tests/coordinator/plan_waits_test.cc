#include "coordinator/deployment/plan_waits.h"

#include <catch2/catch.hpp>

namespace tessera::coordinator {

TEST_CASE("what a planned replica waits for is named: the device, and why it is not ready") {
  v1::DeploymentPlan plan;
  for (const char* device : {"a/0", "b/0", "c/0"}) {
    v1::Replica& replica = *plan.add_replicas();
    replica.set_name(std::string("r-") + device);
    replica.add_stages()->add_workers()->set_device(device);
  }
  std::map<std::string, WorkerRecord> workers;
  CHECK(MissingDevices(plan, workers) == std::vector<std::string>{"a/0", "b/0", "c/0"});
  const auto why = [&] { return WhyNotServing(plan.replicas(1), workers); };
  CHECK(why() == "no worker named b/0 has registered (tessera-worker --name b/0)");

  workers["a/0"].state = v1::WORKER_STATE_READY;
  WorkerRecord& worker = workers["b/0"];
  worker.detail = "said so";
  CHECK(why() == "worker b/0 has registered and is configured next");
  CHECK(MissingDevices(plan, workers) == std::vector<std::string>{"c/0"});
  worker.state = v1::WORKER_STATE_CONFIGURING;
  CHECK(why() == "worker b/0 is being configured: said so");
  worker.state = v1::WORKER_STATE_FAILED;
  CHECK(why() == "worker b/0 could not be configured: said so");
  worker.state = v1::WORKER_STATE_LOST;
  CHECK(why() == "worker b/0 is lost: said so");
  CHECK(MissingDevices(plan, workers) == std::vector<std::string>{"b/0", "c/0"});
  worker.state = v1::WORKER_STATE_READY;
  worker.load.set_draining(true);
  CHECK(why() == "worker b/0 is draining");
  worker.load.set_draining(false);
  CHECK_FALSE(why().empty());
}

TEST_CASE("devices without a worker are named beside workers that the plan does not have") {
  v1::DeploymentPlan plan;
  v1::Stage& stage = *plan.add_replicas()->add_stages();
  for (const char* device : {"a/0", "b/0"}) stage.add_workers()->set_device(device);
  std::map<std::string, WorkerRecord> workers;
  workers["a/0"].state = v1::WORKER_STATE_READY;
  CHECK(DescribeMissing(plan, workers) ==
        "the plan waits for 1 devices without a live worker: b/0");
  workers["B/0"].state = workers["c/0"].state = v1::WORKER_STATE_REGISTERED;
  workers["gone/0"].state = v1::WORKER_STATE_LOST;
  CHECK(DescribeMissing(plan, workers) ==
        "the plan waits for 1 devices without a live worker: b/0; registered, but not in the plan: "
        "B/0, c/0");
  workers["b/0"].state = v1::WORKER_STATE_REGISTERED;
  CHECK(DescribeMissing(plan, workers).empty());
}

TEST_CASE("of several devices the one that holds up the others is named") {
  v1::Replica replica;
  std::map<std::string, WorkerRecord> workers;
  for (const char* device : {"a/0", "b/0", "c/0"}) {
    replica.add_stages()->add_workers()->set_device(device);
    workers[device].detail = "replica r0: why";
  }
  const auto why = [&] { return WhyNotServing(replica, workers); };
  CHECK(why() == "worker a/0 waits: replica r0: why");
  workers["b/0"].state = v1::WORKER_STATE_CONFIGURING;
  CHECK(why() == "worker b/0 is being configured: replica r0: why");
  workers["a/0"].state = workers["c/0"].state = v1::WORKER_STATE_CONFIGURING;
  workers["a/0"].detail = workers["c/0"].detail = "join";
  CHECK(why() == "worker b/0 is being configured: replica r0: why");
  workers["c/0"].detail = "join: cannot reach a/0";
  CHECK(why() == "worker c/0 is being configured: join: cannot reach a/0");
  workers["c/0"].detail = "replica r0: why";
  workers["c/0"].state = v1::WORKER_STATE_FAILED;
  CHECK(why() == "worker c/0 could not be configured: replica r0: why");
  workers["b/0"].state = v1::WORKER_STATE_LOST;
  CHECK(why() == "worker b/0 is lost: replica r0: why");
}

TEST_CASE("replicas that wait are listed, and lost workers that the plan goes on without") {
  v1::DeploymentPlan plan;
  std::map<std::string, WorkerRecord> workers;
  for (const char* device : {"a/0", "b/0"}) {
    v1::Replica& replica = *plan.add_replicas();
    replica.set_name(std::string("r-") + device);
    replica.add_stages()->add_workers()->set_device(device);
    workers[device].state = v1::WORKER_STATE_LOST;
    workers[device].detail = "no heartbeat for 5 s";
  }
  using Lines = std::vector<std::string>;
  CHECK(WhatWaits(plan, "", {"r-a/0"}, workers) ==
        Lines{"replica r-b/0: worker b/0 is lost: no heartbeat for 5 s"});
  plan.mutable_replicas()->RemoveLast();
  CHECK(WhatWaits(plan, "", {"r-a/0"}, workers) ==
        Lines{"worker b/0 is lost: no heartbeat for 5 s"});
  CHECK(WhatWaits({}, "no worker has registered", {}, {}) == Lines{"no worker has registered"});
  for (int i = 1; i <= 10; ++i) workers["c/" + std::to_string(i)].state = v1::WORKER_STATE_LOST;
  const Lines many = WhatWaits(plan, "", {"r-a/0"}, workers);
  REQUIRE(many.size() == 9);
  CHECK(many.back() == "and 3 more");
}

TEST_CASE("a replica's room for KV is its smallest pool's, once all its devices are ready") {
  v1::Replica replica;
  std::map<std::string, WorkerRecord> workers;
  int blocks = 40;
  for (const char* device : {"a/0", "b/0"}) {
    replica.add_stages()->add_workers()->set_device(device);
    workers[device].state = v1::WORKER_STATE_READY;
    workers[device].ready.set_kv_blocks(blocks);
    workers[device].ready.set_block_tokens(16);
    blocks -= 10;
  }
  CHECK(KvTokens(replica, workers) == 480);
  workers["a/0"].state = v1::WORKER_STATE_CONFIGURING;
  CHECK(KvTokens(replica, workers) == 0);
}

}  // namespace tessera::coordinator

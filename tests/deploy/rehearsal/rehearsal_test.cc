// What a rehearsal makes of a plan, and what its report says of a play.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "deploy/rehearsal/rehearsal_folder.h"
#include "deploy/rehearsal/rehearsal_report.h"
#include "proto/json_message.h"
#include "proto/written_file.h"
#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

void AddWorker(const std::string& device, const std::string& kind, v1::DeploymentPlan* plan) {
  v1::PlannedWorker& worker = *plan->add_replicas()->add_stages()->add_workers();
  worker.set_device(device);
  worker.set_kind(kind);
}

RehearsalFacts Facts() {
  RehearsalFacts facts;
  facts.plan_file = "plan.json";
  facts.model = "Tiny";
  facts.tokens = 1000;
  facts.cpu = {0.01, 0.05};
  facts.lateness = {.steps = 5, .model_seconds = 1, .p99 = 1e-3, .share_p99 = 0.02};
  return facts;
}

}  // namespace

TEST_CASE("machines, kinds and links come from the plan where nothing describes the cluster") {
  v1::DeploymentPlan plan;
  AddWorker("near/2", "L4", &plan);
  AddWorker("near/0", "H100", &plan);
  AddWorker("far/0", "L4", &plan);
  v1::LinkLoad& load = *plan.add_links();
  load.set_from("near");
  load.set_to("far");
  load.set_capacity_bytes_per_second(1e9);
  const v1::Cluster cluster = ClusterOfPlan(plan);
  REQUIRE(cluster.machines_size() == 2);
  const v1::Machine& near = cluster.machines(1);
  CHECK(near.name() == "near");
  REQUIRE(near.devices_size() == 2);
  CHECK(near.devices(0).kind() == "H100");
  CHECK(near.devices(0).count() == 1);
  CHECK(near.devices(1).kind() == "L4");
  CHECK(near.devices(1).count() == 2);  // near/1 stands by
  REQUIRE(cluster.links_size() == 1);
  CHECK(cluster.links(0).link().bandwidth_bytes_per_second() == 1e9);
}

TEST_CASE("the processes read back what was written") {
  const tests::TemporaryFolder folder;
  v1::DeploymentPlan plan;
  plan.mutable_model()->set_name("Tiny");
  plan.mutable_model()->set_vocabulary(300);
  const std::string path = folder.path().string();
  REQUIRE(WriteRehearsalFolder(path, plan, {}).ok());
  v1::Model model;
  REQUIRE(ReadJsonMessage(path + "/model.json", &model).ok());
  CHECK(model.name() == "Tiny");
  CHECK(RehearsedTokens(model) == 300);
  REQUIRE(WriteFileText(path + "/model.json", "{\"nmae\": 1}").ok());
  CHECK(absl::IsInvalidArgument(ReadJsonMessage(path + "/model.json", &model)));
}

TEST_CASE("latencies are those of the workload's time, from when a request was due") {
  std::vector<scheduler::SimulatedRequest> requests(3);
  requests[1].arrival_seconds = 1;
  requests[2].arrival_seconds = 2;
  Play play;
  play.requests.resize(3);
  // Half as fast: 1 s of the workload is 2 s here.
  play.requests[0] = {.sent_seconds = 0.5,
                      .first_token_seconds = 2,
                      .last_token_seconds = 10,
                      .tokens = 5,
                      .finished = true};
  play.requests[1] = {.sent_seconds = 2,
                      .first_token_seconds = 4,
                      .last_token_seconds = 8,
                      .tokens = 5,
                      .finished = true};
  play.requests[2].error = "lost";
  const ServedFigures figures = FiguresOf(play, requests, 0.5);
  CHECK(figures.finished == 2);
  CHECK(figures.requests_per_second == Approx(0.4));
  CHECK(figures.tokens_per_second == Approx(2));
  CHECK(figures.ttft.mean == Approx(1));
  CHECK(figures.tpot.p50 == Approx(0.5));
  CHECK(figures.tpot.p95 == Approx(1));
}

TEST_CASE("lateness of all processes is added up, and decides whether a rehearsal is valid") {
  const tests::TemporaryFolder folder;
  const std::string path = folder.path().string();
  REQUIRE(WriteFileText(path + "/a.figures.json",
                        R"({"steps": 98, "model_seconds": 2, "late_seconds": [[0.001, 98]],
                            "late_share": [[0.01, 98]]})")
              .ok());
  REQUIRE(WriteFileText(path + "/b.figures.json",
                        R"({"steps": 2, "model_seconds": 1, "late_seconds": [[0.5, 2]],
                            "late_share": [[0.2, 2]]})")
              .ok());
  RehearsalFacts facts = Facts();
  facts.lateness = ReadLateness(path);
  CHECK(facts.lateness.steps == 100);
  CHECK(facts.lateness.p50 == 0.001);
  CHECK(facts.lateness.p99 == 0.5);
  CHECK(facts.lateness.share_p99 == 0.2);
  CHECK_FALSE(facts.lateness.kept());
  CHECK(ProposedSpeed(1, 0.2) == Approx(0.1));
  const std::string text = RehearsalText(facts);
  CHECK(text.find("NOT VALID") != std::string::npos);
  CHECK(text.find("try --speed 0.1") != std::string::npos);
}

TEST_CASE("the report says what agreement proves, and what the control plane costs") {
  RehearsalFacts facts = Facts();
  std::string text = RehearsalText(facts);
  CHECK(text.find("NOT VALID") == std::string::npos);
  CHECK(text.find("not how fast\ndevices are") != std::string::npos);
  CHECK(text.find("10.0 us of the coordinator's CPU a token") != std::string::npos);
  CHECK(text.find("was killed") == std::string::npos);
  facts.recovery = Recovery{.machine = "near", .at_seconds = 3, .ready_seconds = 1.25};
  text = RehearsalText(facts);
  CHECK(text.find("machine near was killed at 3.0 s") != std::string::npos);
  CHECK(text.find("ready 1.25 s later") != std::string::npos);
  CHECK(RehearsalJson(facts).find("\"ready_seconds\": 1.25") != std::string::npos);
}

}  // namespace tessera::deploy

#include "deploy/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <tuple>

#include "proto/coordinator.grpc.pb.h"
#include "proto/planning.grpc.pb.h"

namespace tessera::deploy {
namespace {

using Catch::Matchers::Contains;

v1::GetClusterReply Cluster() {
  v1::GetClusterReply cluster;
  cluster.set_model("demo");
  cluster.set_plan_epoch(3);
  cluster.set_ready(true);
  cluster.set_requests_in_flight(2);
  cluster.set_sequences_running(5);
  v1::WorkerStatus& ready = *cluster.add_workers();
  ready.set_name("a/0");
  ready.set_state(v1::WORKER_STATE_READY);
  ready.set_replica("r-a/0");
  ready.mutable_device()->set_description("CPU avx512");
  ready.mutable_device()->set_memory_read_bytes_per_second(14.25e9);
  for (const auto& [weights, rows, rate] :
       {std::tuple("bfloat16", 1, 3.02e12), std::tuple("bfloat16", 64, 2.9e12),
        std::tuple("int4", 1, 2.41e12)}) {
    v1::ProductRate& product = *ready.mutable_device()->add_products();
    product.set_weights(weights);
    product.set_rows(rows);
    product.set_read_bytes_per_second(rate);
  }
  ready.mutable_load()->set_kv_blocks_used(1);
  ready.mutable_load()->set_kv_blocks_total(4);
  ready.set_stage(1);
  ready.set_rank(3);
  ready.set_busy_share(0.4321);
  ready.set_planned_busy_share(0.9);
  ready.mutable_counters()->set_formation_aborts(2);
  ready.mutable_counters()->set_links_refused(17);
  v1::LinkStatus& link = *ready.add_links();
  link.set_peer("c/0");
  link.set_kind(v1::LINK_KIND_BULK);
  link.set_transport("tcp");
  link.set_bytes_sent(1'234'567);
  link.set_bytes_received(999);
  link.set_received_bytes_per_second(1.25e9);
  link.set_planned_bytes_per_second(12.5e6);
  v1::LinkStatus& heartbeat = *ready.add_links();
  heartbeat.set_peer("d/0");
  heartbeat.set_kind(v1::LINK_KIND_HEARTBEAT);
  v1::WorkerStatus& lost = *cluster.add_workers();
  lost.set_name("b/0");
  lost.set_state(v1::WORKER_STATE_LOST);
  lost.set_detail("no heartbeat for 5 s");
  v1::ReplicaStatus& replica = *cluster.add_replicas();
  replica.set_name("r-a/0");
  replica.set_ready(true);
  replica.add_workers("a/0");
  v1::Replica& planned = *cluster.mutable_plan()->add_replicas();
  planned.set_name("r-a/0");
  planned.set_role(v1::REPLICA_ROLE_BOTH);
  v1::PlannedWorker& worker = *planned.add_stages()->add_workers();
  worker.set_device("a/0");
  worker.mutable_share()->mutable_layers()->set_end(6);
  cluster.mutable_plan()->add_notes()->set_simulation_error("because");
  return cluster;
}

// Answers GetCluster where the key is right.
class FakeCoordinator final : public v1::Coordinator::Service {
  grpc::Status GetCluster(grpc::ServerContext* context, const v1::GetClusterRequest*,
                          v1::GetClusterReply* reply) override {
    const auto key = context->client_metadata().find("authorization");
    if (key == context->client_metadata().end() || key->second != "Bearer key") {
      return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "the admin key is missing");
    }
    *reply = Cluster();
    return grpc::Status::OK;
  }
};

class FakePlanning final : public v1::Planning::Service {
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest*,
                       v1::GetPlanReply* reply) override {
    reply->set_suggestion("another plan of 2 replicas");
    return grpc::Status::OK;
  }
};

}  // namespace

TEST_CASE("the tables name workers, states, replicas and reasons") {
  const std::string text = ShowCluster(Cluster());
  CHECK_THAT(text, Contains("CPU avx512, reads 14.2 GB/s"));
  CHECK_THAT(text,
             Contains("  a/0: reads weights at (GB/s x rows) bfloat16 3020 x1, 2900 x64; int4 "
                      "2410 x1\n"));
  CHECK_THAT(
      text,
      Contains("model demo, plan epoch 3, serving; 2 requests: 5 sequences running, 0 waiting"));
  CHECK_THAT(text, Contains("STAGE  RANK  KV USED"));
  CHECK_THAT(text, Contains("r-a/0    1      3     25.0 %   43.2 %  90.0 %   2       17 "));
  CHECK_THAT(text, Contains("LOST"));
  CHECK_THAT(text, Contains("b/0: no heartbeat for 5 s"));
  CHECK_THAT(text, Contains("OUTPUT TOK/S"));
  CHECK_THAT(ShowPlan(Cluster()), Contains("r-a/0    both  0      0-5     1      a/0\n"));
  CHECK_THAT(ShowPlan(Cluster()), Contains("why: not simulated: because"));
  CHECK_THAT(ClusterJson(Cluster()), Contains("\"plan_epoch\""));
  CHECK_THAT(ShowCluster({}), Contains("no workers have registered"));
}

TEST_CASE("links are shown with what moved, the measured rate and the planned one") {
  const std::string text = ShowCluster(Cluster());
  CHECK_THAT(text,
             Contains("WORKER  PEER  LINK  OVER  SENT    RECEIVED  RATE RECEIVED  PLANNED\n"
                      "a/0     c/0   bulk  tcp   1.2 MB  999 B     1.2 GB/s       12.5 MB/s\n"));
  CHECK_THAT(text, !Contains("d/0"));
  v1::GetClusterReply unknown = Cluster();
  v1::WorkerStatus& worker = *unknown.mutable_workers(0);
  worker.clear_busy_share();
  worker.clear_planned_busy_share();
  worker.mutable_links(0)->clear_received_bytes_per_second();
  worker.mutable_links(0)->clear_planned_bytes_per_second();
  CHECK_THAT(ShowCluster(unknown), Contains("25.0 %   -     -        2"));
  CHECK_THAT(ShowCluster(unknown), Contains("999 B     -              -\n"));
  worker.clear_links();
  CHECK_THAT(ShowCluster(unknown), !Contains("PEER"));
}

TEST_CASE("replicas' output is shown beside the planned one") {
  v1::GetClusterReply cluster = Cluster();
  CHECK_THAT(ShowCluster(cluster), Contains("0.0           -        a/0\n"));
  cluster.mutable_replicas(0)->set_planned_generation_tokens_per_second(321.5);
  CHECK_THAT(ShowCluster(cluster), Contains("0.0           321.5    a/0\n"));
}

TEST_CASE("drafts are shown, where there were any: how many, how long, and what stood") {
  v1::GetClusterReply cluster = Cluster();
  CHECK_THAT(ShowCluster(cluster), !Contains("DRAFTS"));
  v1::EngineLoad& load = *cluster.mutable_workers(0)->mutable_load();
  load.set_drafts(10);
  load.set_draft_tokens(42);
  load.add_accepted_draft_tokens(9);
  load.add_accepted_draft_tokens(5);
  CHECK_THAT(ShowCluster(cluster), Contains("REPLICA  DRAFTS  TOKENS EACH  ACCEPTED\n"
                                            "r-a/0    10      4.2          33.3 %\n"));
}

TEST_CASE("status says whose drafts are tried, and why") {
  v1::GetClusterReply cluster = Cluster();
  CHECK_THAT(ShowCluster(cluster), !Contains("speculation"));
  cluster.set_speculation("ngram (auto: the model has no head for further tokens)");
  CHECK_THAT(ShowCluster(cluster), Contains("speculation: ngram (auto: the model has no head"));
}

TEST_CASE("status says why there is no plan") {
  v1::GetClusterReply cluster = Cluster();
  CHECK_THAT(ShowCluster(cluster), !Contains("planning waits"));
  cluster.set_no_plan("planning waits for b/0");
  CHECK_THAT(ShowCluster(cluster), Contains("\nplanning waits for b/0\n"));
  CHECK_THAT(ShowCluster(cluster), !Contains("applied"));
  cluster.set_applying("forming r1");
  CHECK_THAT(ShowCluster(cluster), Contains("\nanother plan is being applied: forming r1\n"));
}

TEST_CASE("errors name the address and what to do") {
  const auto nobody = FetchCluster({"127.0.0.1:1", ""}, 0.2);
  CHECK(absl::IsUnavailable(nobody.status()));
  CHECK_THAT(std::string(nobody.status().message()), Contains("127.0.0.1:1"));
  CHECK_THAT(std::string(nobody.status().message()), Contains("--coordinator"));

  FakeCoordinator service;
  FakePlanning planning;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  builder.RegisterService(&planning);
  const auto server = builder.BuildAndStart();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  CHECK(FetchCluster({address, "key"}, 10).value().model() == "demo");
  const auto refused = FetchCluster({address, ""}, 10);
  CHECK(absl::IsPermissionDenied(refused.status()));
  CHECK_THAT(std::string(refused.status().message()), Contains("admin key"));
  CHECK(FetchSuggestion({address, "key"}, 10) == "another plan of 2 replicas");
  CHECK(FetchSuggestion({"127.0.0.1:1", ""}, 0.2).empty());
}

TEST_CASE("what a plan changed is shown by replica") {
  v1::ApplyPlanReply applied;
  applied.set_plan_epoch(7);
  const auto add = [&](const char* name, const char* was, v1::ReplicaChangeKind change) {
    v1::AppliedReplica& replica = *applied.add_replicas();
    replica.set_name(name);
    replica.set_was(was);
    replica.set_change(change);
    return &replica;
  };
  add("r0", "r0", v1::REPLICA_CHANGE_KIND_KEEP);
  v1::AppliedReplica* flipped = add("r1", "x", v1::REPLICA_CHANGE_KIND_FLIP);
  flipped->set_drain_seconds(1.5);
  flipped->set_ready_seconds(0.25);
  v1::AppliedReplica* rebuilt = add("r2", "", v1::REPLICA_CHANGE_KIND_REBUILD);
  rebuilt->set_ready_seconds(12);
  rebuilt->set_read_weights(true);
  add("r3", "r3", v1::REPLICA_CHANGE_KIND_DROP)->set_drain_seconds(2);
  CHECK(ShowApplied(applied) ==
        "plan 7 is in force\n\n"
        "REPLICA  BEFORE  CHANGE   DRAINED  READY    WEIGHTS\n"
        "r0       r0      kept     -        -        -\n"
        "r1       x       flipped  1.50 s   0.25 s   kept\n"
        "r2       -       rebuilt  -        12.00 s  read\n"
        "r3       r3      dropped  2.00 s   -        -\n");
  applied.set_routes(true);
  CHECK(ShowApplied(applied).starts_with("plan 7 is in force, with other routes\n"));
}

TEST_CASE("pairs of replicas: what moved, what failed, and who is left") {
  v1::GetClusterReply cluster = Cluster();
  CHECK_THAT(ShowCluster(cluster), !Contains("KV FROM"));
  v1::ReplicaStatus& decode = *cluster.add_replicas();
  decode.set_name("d");
  decode.set_ready(true);
  v1::HandOverStatus& pair = *cluster.add_hand_overs();
  pair.set_prefill_replica("r-a/0");
  pair.set_decode_replica("d");
  pair.set_prompts(7);
  pair.set_bytes(3'000'000);
  pair.set_seconds(2);
  pair.set_transport("tcp");
  pair.set_failures(4);
  const std::string text = ShowCluster(cluster);
  CHECK_THAT(text.substr(text.find("KV FROM")),
             Contains("3.0") && Contains("1.5") && Contains("tcp") && Contains("in use"));
  pair.set_back_off_seconds(8);
  CHECK_THAT(ShowCluster(cluster), Contains("retry in 8 s"));
  cluster.mutable_replicas(1)->set_ready(false);
  CHECK_THAT(ShowCluster(cluster), Contains("d not ready: r-a/0 does both\n"));
  v1::HandOverStatus& other = *cluster.add_hand_overs();
  other.set_prefill_replica("r-a/0");
  other.set_decode_replica("d2");
  CHECK_THAT(ShowCluster(cluster), Contains("d not ready: r-a/0 does both\n") &&
                                       Contains("d2 not ready: r-a/0 does both\n"));
  v1::ReplicaStatus& second = *cluster.add_replicas();
  second.set_name("d2");
  second.set_ready(true);
  CHECK_THAT(ShowCluster(cluster), Contains("d not ready\n") && Contains("in use\n"));
  cluster.mutable_replicas(0)->set_ready(false);
  CHECK_THAT(ShowCluster(cluster),
             Contains("  not ready\n") && Contains("r-a/0 not ready: d2 does both\n"));
}

}  // namespace tessera::deploy

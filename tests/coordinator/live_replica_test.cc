// Replicas of several workers: configured, published and ended as one. The coordinator's parts are
// the real ones, workers are fakes that register and are configured over gRPC on loopback.
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/coordinator.grpc.pb.h"
#include "proto/leader_term.h"
#include "tests/coordinator/fake_cluster.h"
#include "tests/coordinator/staged_plan.h"
#include "tests/logged_lines.h"
#include "tests/tls/grpc_listener.h"
#include "tests/tls/issued.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

const std::vector<std::string> kNames = {"s0r0", "s0r1", "s1r0", "s2r0"};

// Stages of two, one and one workers.
struct Staged : FakeCluster {
  explicit Staged(double recovery_timeout_seconds = 300, double progress_seconds = 300)
      : FakeCluster(StagedPlan(SmallModel(), {2, 1, 1}), recovery_timeout_seconds,
                    progress_seconds) {}
  void AddAll(uint64_t plan_epoch = 0) {
    for (const std::string& name : kNames) Add(name, plan_epoch);
  }
};

}  // namespace

TEST_CASE("a replica is configured when all its workers are there, as one, and its leader serves") {
  Staged cluster;
  for (const char* name : {"s0r0", "s0r1", "s2r0"}) cluster.Add(name);
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_REGISTERED, "no worker named s1r0"));
  CHECK_THAT(cluster.Detail(), Contains("no worker named s1r0 has registered"));
  // Each worker is looked at in turn, so the others may say so later than the first.
  CHECK(cluster.Wait([&] { return cluster.Status("s2r0").replica() == "r0"; }));
  cluster.Add("s1r0");
  REQUIRE(cluster.WaitReady());
  const v1::ConfigureRequest leader = cluster.worker("s0r0").configured();
  REQUIRE(leader.peers_size() == 4);
  for (size_t i = 0; i < kNames.size(); ++i) {
    INFO(kNames[i]);
    FakeWorker& worker = cluster.worker(kNames[i]);
    const v1::ConfigureRequest got = worker.configured();
    CHECK(worker.configures() == 1);
    CHECK(worker.sessions() == (i == 0 ? 1 : 0));
    CHECK(got.replica() == "r0");
    CHECK(got.fence().plan_epoch() == leader.fence().plan_epoch());
    const v1::Peer& me = got.peers(static_cast<int>(i));
    CHECK(me.stage() == got.stage());
    CHECK(me.rank() == got.rank());
    CHECK(kNames[i] == "s" + std::to_string(got.stage()) + "r" + std::to_string(got.rank()));
    CHECK(me.worker_incarnation() == got.fence().worker_incarnation());
    CHECK(me.link_addresses(0) == "unix:/" + kNames[i]);
    for (int peer = 0; peer < 4; ++peer)
      CHECK(got.peers(peer).SerializeAsString() == leader.peers(peer).SerializeAsString());
  }
  CHECK(cluster.worker("s0r1").configured().share().kinds(0).query_heads().begin() == 2);
  CHECK(cluster.Status("s0r1").rank() == 1);
  CHECK(cluster.Status("s2r0").stage() == 2);
  CHECK(cluster.worker("s1r0").configured().share().layers().begin() == 2);
  const auto reader = cluster.Ask(5);
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->status().message() == "");
  CHECK(reader->ids().size() == 5);
}

TEST_CASE("the replica serves only when every member is ready") {
  Staged cluster;
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());  // gone again below: what was ready is not believed twice
  cluster.worker("s2r0").HoldConfigures();
  cluster.worker("s0r0").BreakFormation(absl::UnavailableError("a link failed"));
  REQUIRE(cluster.Wait([&] { return cluster.worker("s2r0").configures() == 2; }));
  cluster.worker("s2r0").Report("read weights", 40, 100);
  REQUIRE(cluster.WaitState("s2r0", v1::WORKER_STATE_CONFIGURING, "read weights 40 %"));
  CHECK_FALSE(cluster.Describe().ready());
  CHECK(cluster.worker("s0r0").sessions() == 1);
  cluster.worker("s2r0").Release();
  REQUIRE(cluster.WaitReady());
  CHECK(cluster.worker("s0r0").sessions() == 2);
}

TEST_CASE("one that fails to be configured ends its replica, is named, and all are tried again") {
  Staged cluster;
  cluster.Add("s1r0").FailConfigures(absl::ResourceExhaustedError("it lacks 12 bytes"));
  for (const char* name : {"s0r0", "s0r1", "s2r0"}) cluster.Add(name);
  REQUIRE(cluster.WaitState("s1r0", v1::WORKER_STATE_FAILED, "it lacks 12 bytes"));
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_REGISTERED, "s1r0 could not be configured"));
  CHECK_THAT(cluster.Detail(), Contains("s1r0") && Contains("it lacks 12 bytes"));
  CHECK_FALSE(cluster.Describe().ready());
  const uint64_t first = cluster.worker("s0r0").configured().fence().plan_epoch();
  cluster.worker("s1r0").FailConfigures(absl::OkStatus());
  REQUIRE(cluster.WaitReady());
  const uint64_t epoch = cluster.worker("s0r0").configured().fence().plan_epoch();
  CHECK(epoch > first);
  for (const std::string& name : kNames)
    CHECK(cluster.worker(name).configured().fence().plan_epoch() == epoch);
}

TEST_CASE("one that dies while the others load leaves them waiting for it by name") {
  Staged cluster;
  for (const std::string& name : kNames) cluster.Add(name).HoldConfigures();
  // Those that registered first may have been configured before they were held.
  REQUIRE(cluster.Wait([&] { return cluster.worker("s0r0").configures() > 0; }));
  cluster.Kill("s2r0");
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_REGISTERED, "worker s2r0 is lost"));
  CHECK_THAT(cluster.Detail(), Contains("worker s2r0 is lost: no heartbeat"));
  CHECK(cluster.worker("s0r0").sessions() == 0);
  for (const char* name : {"s0r0", "s0r1", "s1r0"}) cluster.worker(name).Release();
  cluster.Add("s2r0");
  REQUIRE(cluster.WaitReady());
  CHECK(cluster.worker("s0r0").sessions() == 1);
}

TEST_CASE("a member that restarts is formed with again, and its streams lose and double nothing") {
  Staged cluster;
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const uint64_t first = cluster.worker("s0r0").configured().fence().plan_epoch();
  const auto reader = cluster.Ask(60);
  REQUIRE(cluster.Wait([&] { return reader->ids().size() > 5; }));
  cluster.Kill("s1r0");
  cluster.worker("s0r0").BreakFormation(absl::UnavailableError("the link to s1r0 closed"));
  REQUIRE(cluster.WaitNotReady());
  cluster.Add("s1r0");
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->status().message() == "");
  const std::vector<int32_t> ids = reader->ids();
  REQUIRE(ids.size() == 60);
  for (int i = 0; i < 60; ++i) CHECK(ids[i] == FakeToken(i));
  const uint64_t second = cluster.worker("s0r0").configured().fence().plan_epoch();
  CHECK(second > first);
  CHECK(cluster.worker("s1r0").configured().fence().plan_epoch() == second);
  CHECK(cluster.worker("s1r0").configures() == 1);
}

TEST_CASE("streams wait for a replica that is formed again as long as that makes progress") {
  Staged cluster(/*recovery_timeout_seconds=*/0.1);
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const auto reader = cluster.Ask(20);
  REQUIRE(cluster.Wait([&] { return reader->ids().size() > 2; }));
  cluster.worker("s2r0").HoldConfigures();
  cluster.worker("s0r0").BreakFormation(absl::UnavailableError("a link failed"));
  REQUIRE(cluster.Wait([&] { return cluster.worker("s2r0").configures() == 2; }));
  const double held = Now();
  for (int64_t done = 1; Now() < held + 1; ++done) {
    cluster.worker("s2r0").Report("read weights", done, 1000);
    cluster.Wait([&, at = Now()] { return Now() > at + 0.05; });
    CHECK_FALSE(reader->ended());
  }
  cluster.worker("s2r0").Release();
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->status().message() == "");
  CHECK(reader->ids().size() == 20);
}

TEST_CASE("streams do not wait for a replica that fails again and again") {
  Staged cluster(/*recovery_timeout_seconds=*/0.1, /*progress_seconds=*/0.5);
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const auto reader = cluster.Ask(3000);
  REQUIRE(cluster.Wait([&] { return reader->ids().size() > 2; }));
  cluster.worker("s2r0").FailConfigures(absl::InternalError("it is broken"));
  cluster.worker("s0r0").BreakFormation(absl::UnavailableError("a link failed"));
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(absl::IsUnavailable(reader->status()));
}

TEST_CASE("a replica whose leader ends the session is configured again with a higher epoch") {
  Staged cluster;
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const uint64_t first = cluster.worker("s0r0").configured().fence().plan_epoch();
  cluster.worker("s0r0").BreakFormation(absl::UnavailableError("the link to s2r0 failed"));
  REQUIRE(cluster.Wait([&] { return cluster.worker("s0r0").sessions() == 2; }));
  REQUIRE(cluster.WaitReady());
  for (const std::string& name : kNames) {
    CHECK(cluster.worker(name).configured().fence().plan_epoch() > first);
    CHECK(cluster.worker(name).configures() == 2);
  }
}

TEST_CASE("a member that drains drains the replica: what runs ends, nothing new starts") {
  Staged cluster;
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const auto reader = cluster.Ask(60);
  REQUIRE(cluster.Wait([&] { return !reader->ids().empty(); }));
  cluster.worker("s2r0").Drain();
  REQUIRE(cluster.WaitNotReady());
  CHECK_THAT(cluster.Detail(), Contains("worker s2r0 is draining"));
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->status().message() == "");
  CHECK(reader->ids().size() == 60);
  CHECK(cluster.worker("s0r0").sessions() == 1);
  cluster.Kill("s2r0");
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_REGISTERED, "s2r0"));
  cluster.Add("s2r0");
  REQUIRE(cluster.WaitReady());
  CHECK(cluster.worker("s0r0").sessions() == 2);
}

TEST_CASE("a new coordinator's epoch is above that of every member") {
  Staged cluster;
  cluster.Add("s0r0", 3);
  cluster.Add("s0r1", 41);
  cluster.Add("s1r0");
  cluster.Add("s2r0", 7);
  REQUIRE(cluster.WaitReady());
  for (const std::string& name : kNames)
    CHECK(cluster.worker(name).configured().fence().plan_epoch() == 42);
  CHECK(cluster.Describe().plan_epoch() == 42);
}

TEST_CASE("a new coordinator with the same plan takes up what its workers serve") {
  Staged cluster;
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const uint64_t epoch = cluster.worker("s0r0").configured().fence().plan_epoch();
  cluster.RestartCoordinator();
  REQUIRE(cluster.WaitReady());
  for (const std::string& name : kNames) {
    INFO(name);
    CHECK(cluster.worker(name).configures() == 1);
    CHECK(cluster.worker(name).taken_up() == 1);
    CHECK(cluster.worker(name).configured().fence().plan_epoch() == epoch);
  }
  CHECK(cluster.worker("s0r0").sessions() == 2);
  const auto reader = cluster.Ask(5);
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->ids().size() == 5);
  // What breaks later is formed under a higher epoch.
  cluster.worker("s0r0").BreakFormation(absl::UnavailableError("the link to s2r0 failed"));
  REQUIRE(cluster.Wait([&] { return cluster.worker("s0r0").sessions() == 3; }));
  REQUIRE(cluster.WaitReady());
  CHECK(cluster.worker("s1r0").configured().fence().plan_epoch() > epoch);
}

TEST_CASE("a new coordinator with another plan forms at once what its workers do not serve") {
  Staged cluster;
  cluster.AddAll();
  REQUIRE(cluster.WaitReady());
  const uint64_t epoch = cluster.worker("s0r0").configured().fence().plan_epoch();
  v1::DeploymentPlan other = StagedPlan(SmallModel(), {2, 1, 1});
  other.mutable_replicas(0)->set_max_sequences(3);
  cluster.RestartCoordinator(other);
  REQUIRE(cluster.WaitReady());
  for (const std::string& name : kNames) {
    INFO(name);
    CHECK(cluster.worker(name).configures() == 2);
    CHECK(cluster.worker(name).taken_up() == 0);
    CHECK(cluster.worker(name).configured().fence().plan_epoch() > epoch);
    CHECK(cluster.Status(name).state() == v1::WORKER_STATE_READY);
  }
}

TEST_CASE("a worker that is started again takes its name at once where the old process is gone") {
  // Silence alone would say so after ten minutes.
  FakeCluster cluster(StagedPlan(SmallModel(), {1}), 300, 300, nullptr, 600);
  cluster.Add("s0r0");
  REQUIRE(cluster.WaitReady());
  const uint64_t first = cluster.Status("s0r0").incarnation();
  const auto reader = cluster.Ask(60);
  REQUIRE(cluster.Wait([&] { return reader->ids().size() > 5; }));
  cluster.Kill("s0r0");
  cluster.Add("s0r0");
  REQUIRE(cluster.Wait([&] { return cluster.Status("s0r0").incarnation() != first; }));
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->status().message() == "");
  CHECK(reader->ids().size() == 60);
  // One that lives keeps its name.
  const uint64_t second = cluster.Status("s0r0").incarnation();
  FakeWorkerOptions twin;
  twin.coordinator = cluster.address();
  twin.name = "s0r0";
  const auto other = FakeWorker::Start(twin);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(cluster.Status("s0r0").incarnation() == second);
  CHECK(cluster.Status("s0r0").state() == v1::WORKER_STATE_READY);
}

TEST_CASE("a worker that cannot be reached back is named with the remedy, in both logs") {
  tests::LoggedLines coordinator("coordinator"), worker("worker");
  FakeCluster cluster(StagedPlan(SmallModel(), {1}));
  FakeWorkerOptions options;
  options.coordinator = cluster.address();
  options.name = "s0r0";
  options.address = "127.0.0.1:1";
  const auto fake = FakeWorker::Start(options);
  const std::string text = "cannot reach it at 127.0.0.1:1";
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_FAILED, text));
  CHECK_THAT(cluster.Status("s0r0").detail(), Contains("--advertise"));
  CHECK(coordinator.Count(text) > 0);
  REQUIRE(cluster.Wait([&] { return worker.Count(text) > 0; }));
  CHECK(worker.Count("--advertise") > 0);
}

TEST_CASE("a worker whose port speaks TLS that the coordinator does not is named with the flag") {
  const tests::GrpcListener foreign(tests::Issue(tests::IssueAuthority()));
  FakeCluster cluster(StagedPlan(SmallModel(), {1}));
  FakeWorkerOptions options;
  options.coordinator = cluster.address();
  options.name = "s0r0";
  options.address = foreign.address();
  const auto fake = FakeWorker::Start(options);
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_FAILED,
                            "does not take this coordinator's handshake"));
  CHECK_THAT(cluster.Status("s0r0").detail(), Contains("--cluster-tls"));
}

TEST_CASE("a refused worker shows at the coordinator too") {
  tests::LoggedLines coordinator("coordinator");
  FakeCluster cluster(StagedPlan(SmallModel(), {1}));
  cluster.Add("s0r0");
  REQUIRE(cluster.WaitReady());
  FakeWorkerOptions twin;
  twin.coordinator = cluster.address();
  twin.name = "s0r0";
  const auto other = FakeWorker::Start(twin);
  REQUIRE(cluster.Wait(
      [&] { return coordinator.Count("is refused: a worker named s0r0 is alive") > 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(coordinator.Count("is refused") == 1);  // it tries again and again
  const auto stub = v1::Coordinator::NewStub(
      grpc::CreateChannel(cluster.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::RegisterRequest older;
  older.set_name("s1r0");
  older.set_address("10.0.0.9:9000");
  older.set_build_version("older");
  v1::RegisterReply reply;
  CHECK_FALSE(stub->Register(&context, older, &reply).ok());
  CHECK(coordinator.Count(
            "worker s1r0 at 10.0.0.9:9000 is refused: worker s1r0 runs build older") == 1);
}

TEST_CASE("a member without room for its share is refused with the amounts, and nothing is sent") {
  v1::DeploymentPlan plan = StagedPlan(SmallModel(), {1, 1});
  v1::PlannedWorker& large = *plan.mutable_replicas(0)->mutable_stages(1)->mutable_workers(0);
  large.set_kv_bytes(int64_t{3} << 20);
  FakeCluster cluster(plan);
  cluster.Add("s0r0");
  cluster.Add("s1r0", 0, int64_t{2} << 20);
  REQUIRE(cluster.WaitState("s1r0", v1::WORKER_STATE_FAILED, "1048576 bytes are missing"));
  REQUIRE(cluster.WaitState("s0r0", v1::WORKER_STATE_REGISTERED, "the plan gives s1r0 3145728"));
  CHECK_THAT(cluster.Detail(), Contains("1048576 bytes are missing"));
  CHECK(cluster.worker("s0r0").configures() == 0);
  CHECK(cluster.worker("s1r0").configures() == 0);
  cluster.Kill("s1r0");
  cluster.Add("s1r0");
  REQUIRE(cluster.WaitReady());
}

TEST_CASE("without a plan a GPU gets more rows a step and more sequences than a CPU") {
  FakeCluster cluster(std::nullopt);
  cluster.Add("cpu");
  cluster.Add("gpu", 0, int64_t{72} << 30, "NVIDIA H100 80GB HBM3");
  cluster.Add("small", 0, int64_t{7} << 30, "NVIDIA GeForce RTX 3070");
  REQUIRE(cluster.WaitState("cpu", v1::WORKER_STATE_READY, "serving"));
  REQUIRE(cluster.WaitState("gpu", v1::WORKER_STATE_READY, "serving"));
  REQUIRE(cluster.WaitState("small", v1::WORKER_STATE_READY, "serving"));
  const v1::ConfigureRequest cpu = cluster.worker("cpu").configured();
  const v1::ConfigureRequest gpu = cluster.worker("gpu").configured();
  CHECK(cpu.max_batched_tokens() == 512);
  CHECK(cpu.max_sequences() == 64);
  CHECK(cluster.worker("small").configured().max_batched_tokens() == 512);
  CHECK(cluster.worker("small").configured().max_sequences() == 64);
  CHECK(gpu.max_batched_tokens() == 2048);
  CHECK(gpu.max_sequences() == 256);
}

TEST_CASE("replicas of one worker are carried out on their own: a joining worker disturbs none") {
  FakeCluster cluster(std::nullopt);
  cluster.Add("a");
  REQUIRE(cluster.WaitReady());
  const auto reader = cluster.Ask(40);
  cluster.Add("b");
  REQUIRE(cluster.WaitState("b", v1::WORKER_STATE_READY, "serving"));
  REQUIRE(cluster.Wait([&] { return reader->ended(); }));
  CHECK(reader->status().message() == "");
  CHECK(cluster.worker("a").configures() == 1);
  CHECK(cluster.worker("a").sessions() == 1);
  // Its session is lost, its plan is not: another session will do.
  cluster.worker("a").EndSessions(absl::UnavailableError("a hiccup"));
  REQUIRE(cluster.Wait([&] { return cluster.worker("a").sessions() == 2; }));
  CHECK(cluster.worker("a").configures() == 1);
}

TEST_CASE("a coordinator that has led before sends workers on which obey a later one") {
  FakeCluster cluster(std::nullopt, 300, 300,
                      [](DeploymentOptions& options) { options.leader_term = [] { return 5; }; });
  const auto stub = v1::Coordinator::NewStub(
      grpc::CreateChannel(cluster.address(), grpc::InsecureChannelCredentials()));
  const auto heard = [&](const char* term) {
    grpc::ClientContext context;
    if (*term != 0) context.AddMetadata(std::string(kLeaderTermKey), term);
    v1::HeartbeatReply reply;
    return stub->Heartbeat(&context, v1::HeartbeatRequest(), &reply).error_code();
  };
  // No such worker is registered, which is what others hear.
  for (const char* term : {"", "4", "5", "no number"}) {
    CAPTURE(term);
    CHECK(heard(term) == grpc::StatusCode::NOT_FOUND);
  }
  CHECK(cluster.heard_term() == 0);
  CHECK(heard("6") == grpc::StatusCode::UNAVAILABLE);
  CHECK(cluster.heard_term() == 6);
}

}  // namespace tessera::coordinator

#include "coordinator/deployment/worker_pool.h"

#include <google/protobuf/message.h>

#include <catch2/catch.hpp>
#include <initializer_list>
#include <map>
#include <string>

#include "proto/protocol.h"

namespace tessera::coordinator {
namespace {

constexpr char kBuild[] = "1.2.3+00aa11bb22cc";

WorkerPoolOptions Options() {
  WorkerPoolOptions options;
  options.heartbeat_interval_seconds = 1;
  options.heartbeat_timeout_seconds = 5;
  options.build_version = kBuild;
  return options;
}

v1::RegisterRequest Worker(const std::string& name, uint64_t incarnation,
                           const std::string& address = "127.0.0.1:1") {
  v1::RegisterRequest request;
  request.set_name(name);
  request.set_address(address);
  request.set_incarnation(incarnation);
  request.set_build_version(kBuild);
  request.set_protocol_version(kProtocolVersion);
  return request;
}

v1::HeartbeatRequest Beat(const std::string& name, uint64_t incarnation) {
  v1::HeartbeatRequest request;
  request.set_name(name);
  request.set_incarnation(incarnation);
  return request;
}

std::string Text(const WorkerRecord& worker) {
  std::string text;
  for (const google::protobuf::Message* part :
       std::initializer_list<const google::protobuf::Message*>{&worker.registration, &worker.load,
                                                               &worker.counters, &worker.ready}) {
    text += part->ShortDebugString() + "; ";
  }
  return text + v1::WorkerState_Name(worker.state) + " " + worker.detail + " of " + worker.replica +
         ", epoch " + std::to_string(worker.plan_epoch) + ", heard at " +
         std::to_string(worker.last_heartbeat_seconds) + ", busy " +
         std::to_string(worker.busy.Share().value_or(-1));
}

}  // namespace

TEST_CASE("registering is idempotent and keeps the state") {
  WorkerPool pool(Options());
  int changes = 0;
  pool.SetListener([&] { ++changes; });
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  pool.SetState("a", 7, v1::WORKER_STATE_CONFIGURING, "read weights");
  REQUIRE(pool.Register(Worker("a", 7), 1).ok());
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_CONFIGURING);
  CHECK(changes == 2);
}

TEST_CASE("what a worker says of itself makes no lines of the log") {
  WorkerPool pool(Options());
  for (const char* name : {"a\n2026-11-30 coordinator: all is well", "../a", "a/../b", "a/"}) {
    const absl::Status refused = pool.Register(Worker(name, 7), 0).status();
    CHECK(absl::IsInvalidArgument(refused));
    CHECK_THAT(std::string(refused.message()), Catch::Contains("--name"));
    CHECK(refused.message().find('\n') == absl::string_view::npos);
  }
  v1::RegisterRequest described = Worker("a", 7);
  described.mutable_device()->set_description("a\nb");
  CHECK_THAT(std::string(pool.Register(described, 0).status().message()),
             Catch::Contains("device.description"));
  CHECK(pool.Snapshot().empty());
}

TEST_CASE("emulated devices are taken in a rehearsal alone, and others are not") {
  for (const bool rehearsal : {false, true}) {
    WorkerPoolOptions options = Options();
    options.rehearsal = rehearsal;
    WorkerPool pool(options);
    v1::RegisterRequest worker = Worker("a", 7);
    worker.mutable_device()->set_kind(rehearsal ? "H100" : "emulated:H100");
    const absl::Status refused = pool.Register(worker, 0).status();
    CHECK(absl::IsFailedPrecondition(refused));
    CHECK(refused.message().find("--rehearsal") != std::string::npos);
    worker.mutable_device()->set_kind(rehearsal ? "emulated:H100" : "H100");
    CHECK(pool.Register(worker, 0).ok());
  }
}

TEST_CASE("a restarted worker starts over, and the old process is not heard any more") {
  WorkerPool pool(Options());
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  pool.SetReady("a", 7, 1, {});
  REQUIRE(pool.Register(Worker("a", 8), 1).ok());
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_REGISTERED);
  pool.SetState("a", 7, v1::WORKER_STATE_READY, "late");
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_REGISTERED);
  CHECK(absl::IsNotFound(pool.Heartbeat(Beat("a", 7), 1)));
  CHECK(pool.Heartbeat(Beat("a", 8), 1).ok());
}

TEST_CASE("two live workers of one name are refused by name") {
  WorkerPool pool(Options());
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  const auto second = pool.Register(Worker("a", 9, "127.0.0.1:2"), 0);
  CHECK(second.status() ==
        absl::AlreadyExistsError("a worker named a is alive at 127.0.0.1:1: give this worker "
                                 "another --name"));
}

TEST_CASE("another build or protocol is refused by name") {
  WorkerPool pool(Options());
  v1::RegisterRequest other = Worker("a", 1);
  other.set_build_version("1.2.3+00aa11bb22cd");  // the same release from other sources
  absl::Status status = pool.Register(other, 0).status();
  CHECK(absl::IsFailedPrecondition(status));
  std::string text(status.message());
  CHECK(text.find("worker a runs build 1.2.3+00aa11bb22cd") != std::string::npos);
  CHECK(text.find("this process runs build 1.2.3+00aa11bb22cc") != std::string::npos);
  other = Worker("a", 1);
  other.set_protocol_version(kProtocolVersion + 1);
  status = pool.Register(other, 0).status();
  CHECK(absl::IsFailedPrecondition(status));
  text = std::string(status.message());
  CHECK(text.find("(protocol 2), this process") != std::string::npos);
  CHECK(pool.Snapshot().empty());
}

TEST_CASE("a heartbeat of another plan epoch is not believed, and a second one starts it over") {
  WorkerPool pool(Options());
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  const auto beat = [&](uint64_t epoch, int running) {
    v1::HeartbeatRequest request = Beat("a", 7);
    request.set_plan_epoch(epoch);
    request.mutable_load()->set_running(running);
    CHECK(pool.Heartbeat(request, 1).ok());
    return pool.Snapshot().at("a");
  };
  beat(0, 0);  // not configured: nothing to differ from
  pool.SetReady("a", 7, 5, {});
  CHECK(beat(5, 1).load.running() == 1);
  WorkerRecord record = beat(4, 2);  // was under way
  CHECK(record.load.running() == 1);
  CHECK(record.state == v1::WORKER_STATE_READY);
  CHECK(beat(5, 3).load.running() == 3);
  beat(9, 4);
  record = beat(9, 4);  // another coordinator's plan
  CHECK(record.state == v1::WORKER_STATE_REGISTERED);
  CHECK(record.detail == "worker a serves plan epoch 9, it was configured for epoch 5");
  CHECK(record.registration.plan_epoch() == 9);
  CHECK(record.load.running() == 3);
}

TEST_CASE("what drains says so past its engine's end, and is not configured for that") {
  WorkerPool pool(Options());
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  pool.SetReady("a", 7, 5, {});
  v1::HeartbeatRequest request = Beat("a", 7);
  request.mutable_load()->set_draining(true);
  for (int i = 0; i < 3; ++i) REQUIRE(pool.Heartbeat(request, 1).ok());
  CHECK(pool.Snapshot().at("a").load.draining());
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_READY);
}

TEST_CASE("silence makes a worker lost, registering again brings it back") {
  WorkerPool pool(Options());
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  REQUIRE(pool.Register(Worker("b", 3), 0).ok());
  REQUIRE(pool.Heartbeat(Beat("b", 3), 4).ok());
  pool.ExpireSilent(5.5);
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_LOST);
  CHECK(pool.Snapshot().at("b").state == v1::WORKER_STATE_REGISTERED);
  CHECK(absl::IsNotFound(pool.Heartbeat(Beat("a", 7), 6)));
  REQUIRE(pool.Register(Worker("a", 7), 6).ok());
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_REGISTERED);
}

TEST_CASE("names that were lost long ago are forgotten, those of a plan are not") {
  WorkerPool pool(Options());
  pool.KeepNames({"planned"});
  int changes = 0;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(pool.Register(Worker("pod-" + std::to_string(i), i + 1), i).ok());
    pool.ExpireSilent(i);
  }
  REQUIRE(pool.Register(Worker("planned", 7), 100).ok());
  REQUIRE(pool.Register(Worker("alive", 8), 100).ok());
  pool.ExpireSilent(600);
  CHECK(pool.Snapshot().size() == 102);
  pool.SetListener([&] { ++changes; });
  REQUIRE(pool.Register(Worker("alive", 8), 650).ok());
  pool.ExpireSilent(649.5);
  CHECK(pool.Snapshot().size() == 52);
  CHECK_FALSE(pool.Snapshot().contains("pod-49"));
  CHECK(pool.Snapshot().contains("pod-50"));
  CHECK(changes > 0);
  pool.ExpireSilent(655);
  pool.ExpireSilent(1e6);
  REQUIRE(pool.Snapshot().size() == 2);  // "alive" was alive until now
  pool.ExpireSilent(1e6);
  CHECK(pool.Snapshot().size() == 1);
  CHECK(pool.Snapshot().at("planned").state == v1::WORKER_STATE_LOST);
}

TEST_CASE("a copy that is refreshed has what a snapshot has, and only what changed is copied") {
  WorkerPool pool(Options());
  WorkerCopy copy;
  const auto check = [&] {
    const std::map<std::string, WorkerRecord> whole = pool.Snapshot();
    pool.Refresh(&copy);
    CHECK(copy.workers.size() == whole.size());
    for (const auto& [name, worker] : whole) CHECK(Text(copy.workers[name]) == Text(worker));
  };
  check();
  for (const char* name : {"a", "b", "c"}) REQUIRE(pool.Register(Worker(name, 7), 0).ok());
  check();
  pool.SetReplica("a", "r-a");
  check();
  pool.SetState("a", 7, v1::WORKER_STATE_CONFIGURING, "read weights");
  check();
  v1::WorkerReady ready;
  ready.set_kv_blocks(9);
  pool.SetReady("a", 7, 3, ready);
  check();
  v1::EngineLoad load;
  load.set_running(2);
  pool.SetLoad("a", load);
  check();
  v1::HeartbeatRequest beat = Beat("a", 7);
  beat.mutable_counters()->set_busy_seconds(0.5);
  beat.mutable_counters()->set_uptime_seconds(1);
  REQUIRE(pool.Heartbeat(beat, 4).ok());
  check();
  copy.workers["b"].detail = "left as it is";
  pool.SetState("b", 7, v1::WORKER_STATE_REGISTERED, "");
  pool.SetReplica("b", "");
  pool.Refresh(&copy);
  CHECK(copy.workers["b"].detail == "left as it is");
  pool.ExpireSilent(6);
  check();
  CHECK(copy.workers["b"].state == v1::WORKER_STATE_LOST);
  REQUIRE(pool.Register(Worker("b", 8), 600).ok());
  pool.ExpireSilent(601);
  check();
  CHECK(copy.workers.count("c") == 0);
  REQUIRE(pool.Register(Worker("c", 8), 601).ok());
  check();
}

TEST_CASE("counters of a heartbeat are believed whatever its plan epoch") {
  WorkerPool pool(Options());
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  CHECK(!pool.Snapshot().at("a").busy.Share().has_value());
  pool.SetReady("a", 7, 4, {});
  v1::HeartbeatRequest beat = Beat("a", 7);
  for (int second = 1; second <= 3; ++second) {
    beat.set_plan_epoch(static_cast<uint64_t>(second));
    beat.mutable_counters()->set_uptime_seconds(second);
    beat.mutable_counters()->set_busy_seconds(0.25 * second);
    beat.mutable_counters()->set_links_refused(9);
    REQUIRE(pool.Heartbeat(beat, second).ok());
  }
  CHECK(pool.Snapshot().at("a").counters.links_refused() == 9);
  CHECK(pool.Snapshot().at("a").busy.Share().value() == 0.25);
  // A heartbeat without them leaves them.
  beat.clear_counters();
  REQUIRE(pool.Heartbeat(beat, 4).ok());
  CHECK(pool.Snapshot().at("a").counters.links_refused() == 9);
  // Another process has counted nothing.
  REQUIRE(pool.Register(Worker("a", 8), 5).ok());
  CHECK(pool.Snapshot().at("a").counters.links_refused() == 0);
  CHECK(!pool.Snapshot().at("a").busy.Share().has_value());
}

}  // namespace tessera::coordinator

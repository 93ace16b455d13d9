#include "coordinator/worker_pool.h"

#include <catch2/catch.hpp>

#include "proto/protocol.h"

namespace tessera::coordinator {
namespace {

v1::RegisterRequest Worker(const std::string& name, uint64_t incarnation,
                           const std::string& address = "127.0.0.1:1") {
  v1::RegisterRequest request;
  request.set_name(name);
  request.set_address(address);
  request.set_incarnation(incarnation);
  request.set_build_version(std::string(kBuildVersion));
  request.set_protocol_version(kProtocolVersion);
  return request;
}

v1::HeartbeatRequest Beat(const std::string& name, uint64_t incarnation) {
  v1::HeartbeatRequest request;
  request.set_name(name);
  request.set_incarnation(incarnation);
  return request;
}

}  // namespace

TEST_CASE("registering is idempotent and keeps the state") {
  WorkerPool pool({});
  int changes = 0;
  pool.SetListener([&] { ++changes; });
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  pool.SetState("a", 7, v1::WORKER_STATE_CONFIGURING, "read weights");
  REQUIRE(pool.Register(Worker("a", 7), 1).ok());
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_CONFIGURING);
  CHECK(changes == 2);
}

TEST_CASE("a restarted worker starts over, and the old process is not heard any more") {
  WorkerPool pool({});
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  pool.SetReady("a", 7, {});
  REQUIRE(pool.Register(Worker("a", 8), 1).ok());
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_REGISTERED);
  pool.SetState("a", 7, v1::WORKER_STATE_READY, "late");
  CHECK(pool.Snapshot().at("a").state == v1::WORKER_STATE_REGISTERED);
  CHECK(absl::IsNotFound(pool.Heartbeat(Beat("a", 7), 1)));
  CHECK(pool.Heartbeat(Beat("a", 8), 1).ok());
}

TEST_CASE("two live workers of one name are refused by name") {
  WorkerPool pool({});
  REQUIRE(pool.Register(Worker("a", 7), 0).ok());
  const auto second = pool.Register(Worker("a", 9, "127.0.0.1:2"), 0);
  CHECK(second.status() ==
        absl::AlreadyExistsError("a worker named a is alive at 127.0.0.1:1: give this one "
                                 "another --name"));
}

TEST_CASE("another build is refused by name") {
  WorkerPool pool({});
  v1::RegisterRequest other = Worker("a", 1);
  other.set_build_version("9.9");
  const absl::Status status = pool.Register(other, 0).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(std::string(status.message()).find("worker a runs build 9.9") != std::string::npos);
}

TEST_CASE("silence makes a worker lost, registering again brings it back") {
  WorkerPool pool({.heartbeat_interval_seconds = 1, .heartbeat_timeout_seconds = 5});
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

}  // namespace tessera::coordinator

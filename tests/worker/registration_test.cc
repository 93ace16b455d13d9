#include "worker/registration.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "tests/logged_lines.h"

namespace tessera::worker {
namespace {

template <typename Condition>
bool Eventually(const Condition& done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return done();
}

// A coordinator that counts.
class FakeCoordinator final : public v1::Coordinator::CallbackService {
 public:
  explicit FakeCoordinator(const std::string& address = "127.0.0.1:0") {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeCoordinator() override {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
  }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override {
    {
      std::lock_guard lock(mutex_);
      last_ = *request;
      const auto& metadata = context->client_metadata();
      const auto found = metadata.find(std::string(kClusterTokenKey));
      token_ =
          found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
      term = LeaderTermIn(metadata);
    }
    ++registrations;
    reply->set_heartbeat_interval_seconds(0.01);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(refuse ? grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "another build")
                           : grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatReply*) override {
    steps = request->load().steps();
    refused_links = request->counters().links_refused();
    ++heartbeats;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(forget.exchange(false) ? grpc::Status(grpc::StatusCode::NOT_FOUND, "who?")
                                           : grpc::Status::OK);
    return reactor;
  }

  const std::string& address() const { return address_; }
  v1::RegisterRequest last() {
    std::lock_guard lock(mutex_);
    return last_;
  }
  std::string token() {
    std::lock_guard lock(mutex_);
    return token_;
  }

  std::atomic<int> registrations = 0, heartbeats = 0;
  std::atomic<uint64_t> steps = 0, refused_links = 0, term = 0;
  std::atomic<bool> forget = false, refuse = false;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::mutex mutex_;
  v1::RegisterRequest last_;
  std::string token_;
};

RegistrationOptions Options(const std::string& coordinator) {
  RegistrationOptions options;
  options.coordinator = coordinator;
  options.cluster_token = "a-token-of-sixteen-bytes";
  options.request.set_name("box/1");
  options.request.set_incarnation(42);
  options.plan_epoch = [] { return 7; };
  options.load = [] {
    v1::EngineLoad load;
    load.set_steps(5);
    return load;
  };
  options.counters = [] {
    v1::WorkerCounters counters;
    counters.set_links_refused(6);
    return counters;
  };
  options.min_backoff_seconds = 0.01;
  options.max_backoff_seconds = 0.05;
  return options;
}

TEST_CASE("registers once, then sends heartbeats with the load") {
  FakeCoordinator coordinator;
  Registration registration(Options(coordinator.address()));
  REQUIRE(Eventually([&] { return coordinator.heartbeats > 3; }));
  CHECK(registration.registered());
  CHECK(coordinator.registrations == 1);
  CHECK(coordinator.last().name() == "box/1");
  CHECK(coordinator.last().incarnation() == 42);
  CHECK(coordinator.last().plan_epoch() == 7);
  CHECK(coordinator.refused_links == 6);
  CHECK(coordinator.token() == "a-token-of-sixteen-bytes");
  CHECK(coordinator.steps == 5);
}

TEST_CASE("registers again when it was forgotten") {
  FakeCoordinator coordinator;
  Registration registration(Options(coordinator.address()));
  REQUIRE(Eventually([&] { return coordinator.heartbeats > 1; }));
  coordinator.forget = true;
  CHECK(Eventually([&] { return coordinator.registrations == 2; }));
}

TEST_CASE("waits for a coordinator that is not there yet, and rejoins after its restart") {
  auto coordinator = std::make_unique<FakeCoordinator>();
  const std::string address = coordinator->address();
  coordinator.reset();
  Registration registration(Options(address));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK_FALSE(registration.registered());
  coordinator = std::make_unique<FakeCoordinator>(address);
  REQUIRE(Eventually([&] { return registration.registered(); }));
  coordinator.reset();
  REQUIRE(Eventually([&] { return !registration.registered(); }));
  coordinator = std::make_unique<FakeCoordinator>(address);
  CHECK(Eventually([&] { return registration.registered(); }));
  CHECK(coordinator->registrations >= 1);
}

TEST_CASE("of several coordinators the one that answers is taken, and the next one after it") {
  auto first = std::make_unique<FakeCoordinator>();
  auto second = std::make_unique<FakeCoordinator>();
  const std::string addresses = first->address() + "," + second->address();
  Registration registration(Options(addresses));
  REQUIRE(Eventually([&] { return first->heartbeats > 2; }));
  CHECK(second->registrations == 0);
  first.reset();
  REQUIRE(Eventually([&] { return second->heartbeats > 2; }));
  CHECK(registration.registered());
  first = std::make_unique<FakeCoordinator>(addresses.substr(0, addresses.find(',')));
  second->refuse = true;  // it leads no more
  second->forget = true;
  CHECK(Eventually([&] { return first->heartbeats > 2; }));
}

TEST_CASE("the term that the worker obeys goes with its calls") {
  FakeCoordinator coordinator;
  RegistrationOptions options = Options(coordinator.address());
  options.leader_term = [] { return 9; };
  Registration registration(std::move(options));
  REQUIRE(Eventually([&] { return registration.registered(); }));
  CHECK(coordinator.term == 9);
}

TEST_CASE("a refusal is tried again: the coordinator may be upgraded next") {
  FakeCoordinator coordinator;
  coordinator.refuse = true;
  Registration registration(Options(coordinator.address()));
  REQUIRE(Eventually([&] { return coordinator.registrations > 2; }));
  CHECK_FALSE(registration.registered());
  coordinator.refuse = false;
  CHECK(Eventually([&] { return registration.registered(); }));
}

// How often the log names the refusal, until the coordinator has refused `times` times.
int Said(double say_again_seconds, int times) {
  FakeCoordinator coordinator;
  coordinator.refuse = true;
  const tests::LoggedLines lines("worker");
  RegistrationOptions options = Options(coordinator.address());
  options.say_again_seconds = say_again_seconds;
  Registration registration(std::move(options));
  CHECK(Eventually([&] { return coordinator.registrations > times; }));
  registration.Stop();
  return lines.Count("another build");
}

TEST_CASE("a refusal that lasts is logged again and again, though not each time") {
  CHECK(Said(3600, 5) == 1);
  CHECK(Said(0, 5) >= 5);
}

TEST_CASE("stops at once in the middle of a call that nobody answers") {
  RegistrationOptions options = Options("127.0.0.1:1");
  options.call_timeout_seconds = 3600;
  options.max_backoff_seconds = options.min_backoff_seconds = 3600;
  Registration registration(std::move(options));
  const auto start = std::chrono::steady_clock::now();
  registration.Stop();
  // Not after the hour that the call and the retry may take.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(50));
}

}  // namespace
}  // namespace tessera::worker

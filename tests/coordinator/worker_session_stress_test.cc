// Sessions that end in every way, over and over: what an abort, a leak or a wait without end needs.
// Tagged slow; SESSION_ROUNDS says how many rounds (1000).

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/deployment/worker_session.h"
#include "tests/coordinator/session_leader.h"

namespace tessera::coordinator {
namespace {

const v1::Fence kOurs = Fence(5, 77);

int Rounds() {
  const char* rounds = std::getenv("SESSION_ROUNDS");
  return rounds == nullptr ? 1000 : std::atoi(rounds);
}

std::shared_ptr<WorkerSession> Open(const std::shared_ptr<grpc::Channel>& channel,
                                    Listener& listener) {
  WorkerSessionOptions options;
  options.replica = "r0";
  options.fence = kOurs;
  return WorkerSession::Open(channel, std::move(options), listener);
}

TEST_CASE("a reply of another plan, each time with a server and a channel of its own") {
  for (int i = 0; i < Rounds(); ++i) {
    Leader leader(
        {.replies = {Reply(1, kOurs), Reply(2, Fence(4, 77)), Reply(3, kOurs)}, .refusal = {}});
    Listener listener;
    const auto session = Open(leader.channel, listener);
    REQUIRE(listener.WaitUntilLost());
    REQUIRE(listener.reason.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(listener.steps == std::vector<uint64_t>{1});
  }
}

TEST_CASE("closed at any moment by another thread while messages go both ways") {
  std::vector<v1::SessionReply> replies(50, Reply(1, kOurs));
  for (int i = 0; i < Rounds(); ++i) {
    Leader leader({.replies = replies, .refusal = {}, .reads = true});
    Listener listener;
    const auto session = Open(leader.channel, listener);
    std::thread sender([&] {
      v1::SessionRequest request;
      request.mutable_cancel()->set_submission_id(1);
      while (session->Send(request)) {
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 3000));
    session->Close(absl::UnavailableError("closed"));
    sender.join();
    REQUIRE(listener.WaitUntilLost());
    REQUIRE(listener.lost == 1);
    REQUIRE(listener.after_lost == 0);
  }
}

TEST_CASE("the server goes away at any moment") {
  std::vector<v1::SessionReply> replies(50, Reply(1, kOurs));
  for (int i = 0; i < Rounds(); ++i) {
    Leader leader({.replies = replies, .refusal = {}, .reads = true});
    Listener listener;
    const auto session = Open(leader.channel, listener);
    std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 3000));
    leader.Stop();
    REQUIRE(listener.WaitUntilLost());
    REQUIRE(listener.lost == 1);
  }
}

}  // namespace
}  // namespace tessera::coordinator

#include "coordinator/deployment/worker_session.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/session_leader.h"
#include "tests/no_more_threads.h"

namespace tessera::coordinator {
namespace {

const v1::Fence kOurs = Fence(5, 77);

std::shared_ptr<WorkerSession> Open(const std::shared_ptr<grpc::Channel>& channel,
                                    Listener& listener, size_t max_outbox_messages = 65536) {
  WorkerSessionOptions options;
  options.replica = "r0";
  options.fence = kOurs;
  options.max_outbox_messages = max_outbox_messages;
  return WorkerSession::Open(channel, std::move(options), listener);
}

v1::SessionRequest Cancel(uint64_t id) {
  v1::SessionRequest request;
  request.mutable_cancel()->set_submission_id(id);
  return request;
}

}  // namespace

TEST_CASE("a reply of another plan or another process ends the session by name, unheard") {
  const auto [stale, text] = GENERATE(
      std::pair(Fence(4, 77),
                "stale reply of replica r0: it comes from plan epoch 4, the session is of 5"),
      std::pair(
          Fence(5, 78),
          "stale reply of replica r0: it comes from worker incarnation 78, the session is with 77"),
      std::pair(
          Fence(0, 0),
          "stale reply of replica r0: it comes from worker incarnation 0, the session is with 77"));
  Leader leader({.replies = {Reply(1, kOurs), Reply(2, stale), Reply(3, kOurs)}, .refusal = {}});
  Listener listener;
  const auto session = Open(leader.channel, listener);
  REQUIRE(listener.WaitUntilLost());
  CHECK(listener.ready == 1);
  CHECK(listener.steps == std::vector<uint64_t>{1});
  CHECK(listener.reason == absl::FailedPreconditionError(text));
}

TEST_CASE("a session that is refused is never ready, and lost with the leader's reason") {
  Leader leader({.replies = {}, .refusal = {grpc::StatusCode::FAILED_PRECONDITION, "not here"}});
  Listener listener;
  const auto session = Open(leader.channel, listener);
  session->Send(Cancel(1));
  REQUIRE(listener.WaitUntilLost());
  CHECK(listener.ready == 0);
  CHECK(listener.lost == 1);
  CHECK(listener.reason == absl::FailedPreconditionError("not here"));
  CHECK_FALSE(session->Send(Cancel(2)));
}

TEST_CASE("where nobody listens the session is lost, not ready") {
  Leader leader({});
  leader.Stop();
  Listener listener;
  const auto session = Open(leader.channel, listener);
  REQUIRE(listener.WaitUntilLost());
  CHECK(listener.ready == 0);
  CHECK(listener.reason.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("what is sent arrives in order with the session's fence, also what was sent at once") {
  Leader leader({.replies = {}, .refusal = {}, .reads = true});
  Listener listener;
  const auto session = Open(leader.channel, listener);
  constexpr size_t kMessages = 300;
  for (uint64_t i = 0; i < kMessages; ++i) REQUIRE(session->Send(Cancel(i)));
  REQUIRE(leader.WaitUntilHeard(kMessages));
  session->Close(absl::UnavailableError("enough"));
  REQUIRE(listener.WaitUntilLost());
  CHECK(listener.reason == absl::UnavailableError("enough"));
  for (uint64_t i = 0; i < kMessages; ++i) {
    CHECK(leader.heard[i].cancel().submission_id() == i);
    CHECK(leader.heard[i].fence().plan_epoch() == 5);
    CHECK(leader.heard[i].fence().worker_incarnation() == 77);
  }
}

TEST_CASE("a leader that does not read is lost when the outbox is full") {
  Leader leader({});
  Listener listener;
  const auto session = Open(leader.channel, listener, 4);
  v1::SessionRequest request;
  for (int i = 0; i < 100'000; ++i) request.mutable_submit()->add_prompt_token_ids(i);
  int sent = 0;
  while (sent < 1000 && session->Send(request)) ++sent;
  CHECK(sent < 1000);
  REQUIRE(listener.WaitUntilLost());
  CHECK_THAT(std::string(listener.reason.message()), Catch::Contains("stopped reading"));
}

TEST_CASE("a session may be closed from inside its own callback, and is lost once, at the end") {
  Leader leader({.replies = {Reply(1, kOurs), Reply(2, kOurs), Reply(3, kOurs)}, .refusal = {}});
  Listener listener;
  std::shared_ptr<WorkerSession> session;
  std::mutex opened;
  listener.on_reply = [&](const auto& link) {
    std::lock_guard lock(opened);
    REQUIRE(link == session);
    session->Close(absl::AbortedError("heard enough"));
  };
  {
    std::lock_guard lock(opened);
    session = Open(leader.channel, listener);
  }
  REQUIRE(listener.WaitUntilLost());
  session->Close(absl::UnavailableError("too late"));
  CHECK_FALSE(session->Send(Cancel(1)));
  CHECK(listener.reason == absl::AbortedError("heard enough"));
  CHECK(listener.lost == 1);
  CHECK(listener.after_lost == 0);
}

TEST_CASE("a leader that ends the session in good order is lost all the same") {
  Leader leader({.replies = {Reply(1, kOurs)}, .refusal = {}, .ends = true});
  Listener listener;
  const auto session = Open(leader.channel, listener);
  REQUIRE(listener.WaitUntilLost());
  CHECK(listener.steps == std::vector<uint64_t>{1});
  CHECK(listener.reason == absl::UnavailableError("its leader ended the session"));
}

TEST_CASE("a session whose thread cannot be started is lost with the reason and the way out") {
  Leader leader({});
  Listener warm;  // gRPC's own threads run by now
  const auto other = Open(leader.channel, warm);
  other->Close(absl::UnavailableError("warm"));
  REQUIRE(warm.WaitUntilLost());
  Listener listener;
  {
    const tests::NoMoreThreads none;
    const auto session = Open(leader.channel, listener);
    CHECK_FALSE(session->Send(Cancel(1)));
    REQUIRE(listener.WaitUntilLost());
  }
  CHECK(listener.ready == 0);
  CHECK(listener.reason.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(listener.reason.message()), Catch::Contains("limit on processes"));
}

}  // namespace tessera::coordinator

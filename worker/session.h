// The worker's end of the Session streams: messages to the engine, replies to the coordinator.
//
// Flow control: a reply needs a credit, which the coordinator grants, and a place in the outbox of
// kMaxOutbox messages; without either MayDeliver is false and the engine pauses. A message with a
// stale fence ends the stream with FAILED_PRECONDITION. The end of the stream, however it comes,
// ends its sequences. What they had emitted is kept for another session (worker/kept_answers.h).
//
// Thread rule: one thread serves all streams of a server, from a completion queue of its own
// (gRPC's callback queue sleeps for 100 ms of each 1.1 s without an event, so a request would
// wait); the engine's thread calls the methods of ReplySink. Lifetime: a stream keeps itself alive
// until gRPC is done with it; the engine may hold what is left of it longer.
#pragma once

#include <grpcpp/completion_queue.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/async_stream.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "worker/engine/engine.h"
#include "worker/kept_answers.h"

namespace tessera::worker {

inline constexpr size_t kMaxOutbox = 64;
// More credit than this is not remembered.
inline constexpr int64_t kMaxCredit = 1 << 20;

using SessionStream = grpc::ServerAsyncReaderWriter<v1::SessionReply, v1::SessionRequest>;

// What a service says about its method Session.
struct SessionMethod {
  // Asks gRPC for the next stream; the queue reports it by `tag`.
  std::function<void(grpc::ServerContext* context, SessionStream* stream, void* tag)> request;
  // The engine that an accepted stream attaches to, or what refuses the stream.
  std::function<absl::StatusOr<std::shared_ptr<Engine>>(const grpc::ServerContext&)> engine;
  std::shared_ptr<KeptAnswers> kept;
  // The first stream was asked for: from now on server and queue may be shut down. May be empty.
  std::function<void()> begun;
};

// Serves streams until the queue was shut down, which must follow the server's shutdown, and all
// have ended.
void ServeSessions(grpc::ServerCompletionQueue& queue, const SessionMethod& method);

}  // namespace tessera::worker

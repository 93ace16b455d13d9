// The worker's end of one Session stream: messages to the engine, replies to the coordinator.
//
// Flow control: a reply needs a credit, which the coordinator grants, and a place in the outbox of
// kMaxOutbox messages; without either MayDeliver is false and the engine pauses. A message with a
// stale fence ends the stream with FAILED_PRECONDITION. The end of the stream, however it comes,
// ends its sequences.
//
// Thread rule: gRPC calls the reactor's methods, the engine's thread those of ReplySink. Lifetime:
// keeps itself alive until gRPC is done with it; the engine may hold it longer.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>

#include "worker/engine.h"

namespace tessera::worker {

inline constexpr size_t kMaxOutbox = 64;
// More credit than this is not remembered.
inline constexpr int64_t kMaxCredit = 1 << 20;

// Attaches to the engine and starts reading. The reactor deletes itself.
grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionReply>* OpenSession(
    std::shared_ptr<Engine> engine);

}  // namespace tessera::worker

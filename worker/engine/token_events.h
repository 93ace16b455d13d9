// What a choice sends: the events of an engine, one per token and one end per choice.
//
// Thread rule: pure functions on the engine's thread; each appends to `events`.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/engine/sequence.h"

namespace tessera::worker {

using TokenEvents = std::vector<v1::TokenEvent>;

// An event of `sequence`, without token or finish. Its first one carries what is known once: cached
// tokens, times, and the prompt's logprobs. Valid until the next event is added.
v1::TokenEvent* AddEvent(Sequence* sequence, double now_seconds, TokenEvents* events);
// The end of `sequence`: ERROR with `status`, or CANCELLED.
void AddEnd(const Sequence& sequence, const absl::Status& status, TokenEvents* events);
// Refuses every choice of `submit` with `status`.
void AddRefusal(const v1::Submit& submit, const absl::Status& status, TokenEvents* events);

}  // namespace tessera::worker

// A generation as a worker is asked for it. Thread rule: pure functions.
#pragma once

#include <string>

#include "coordinator/flow/generation.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

// Holds a Submit without what differs between attempts: submission id, attempt, choices and the
// tokens that are there already.
// With an answer_id, that is the id that the worker keeps the answer under, for its client.
v1::SessionRequest ToSubmit(const GenerationRequest& request);

// v1::Submit::owner: a hash of the client's name, which no other client has.
std::string OwnerOf(const std::string& client);

}  // namespace tessera::coordinator

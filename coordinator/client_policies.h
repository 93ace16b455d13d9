// What each API key may have of the replicas, as its line of --api-key-file says.
// Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "coordinator/api/key_ring.h"
#include "coordinator/fairness/fair_service.h"

namespace tessera::coordinator {

// By GenerationRequest::client.
std::map<std::string, ClientPolicy> PoliciesOf(const KeyRing& keys);

}  // namespace tessera::coordinator

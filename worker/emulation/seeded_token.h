// Tokens of devices that compute nothing: each depends on the request's seed, its choice and the
// position alone, so that a request goes on with the same ones wherever it goes on.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "worker/step/sampler.h"

namespace tessera::worker {

// Below `vocabulary`, and one that the request allows; kernels::kNothingToPick where it allows
// none. Temperature, penalties and biases change nothing.
int32_t SeededToken(const SampleRequest& request, int64_t vocabulary);

}  // namespace tessera::worker

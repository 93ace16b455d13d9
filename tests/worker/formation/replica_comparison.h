// Two replicas' answers to the same requests, compared. Failures fail the test. Thread rule: one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tests/worker/formation/replica_harness.h"

namespace tessera::worker {

using Answers = std::map<std::pair<uint64_t, int32_t>, ChoiceEvents>;  // by submission and choice

// Tokens, logprobs of all kinds and ends are the same, bit for bit.
void CheckSameBits(const Answers& got, const Answers& expected);

// Ends and tokens are the same, and logprobs differ by at most `tolerance` of the span between the
// position's largest and smallest, or of 1 where that is smaller. Returns how many tokens were
// compared: those of a greedy choice are compared up to the first position where the best two of
// `expected` are nearer to each other than `tolerance` of the span, since either may be chosen
// there.
int64_t CheckWithin(double tolerance, const Answers& got, const Answers& expected);

// The largest |difference| of logprobs of the same prompt, over the span at its position.
double PromptDifference(const ChoiceEvents& got, const ChoiceEvents& expected);

}  // namespace tessera::worker

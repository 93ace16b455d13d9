// What a request adds to and takes from its logits before a token is sampled. Host-side loops over
// the few entries of a row, shared by all CPU paths.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace tessera::kernels {

// Row `row` of args.logits, which is finite: bias, then repetition, presence and frequency
// penalties, then its mask. Ids outside the vocabulary are padding. Afterwards a logit is finite,
// or -infinity where a bias of -infinity or the mask bans it.
void AdjustLogits(const SampleArgs& args, int64_t row);

// Index of the largest value, the lowest among equals; NaN never wins; 0 where nothing does.
int32_t ArgMax(const float* values, int64_t count);

}  // namespace tessera::kernels

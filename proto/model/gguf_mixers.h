// What the keys of a GGUF file say of mixers that not all families have: latent attention, gated
// delta nets, heads and rotations that differ between layers with a window and others.
//
// Failures go to the keys. Pure, thread-safe.
#pragma once

#include <cstdint>

#include "proto/model/gguf_keys.h"

namespace tessera {

// Keys and values are made from a latent, which files have as one head; older ones, whose keys and
// values of heads are one matrix, name the sizes of heads.
void WriteGgufLatent(GgufKeys& keys);

// Where attention is between gated delta nets.
void WriteGgufDelta(GgufKeys& keys, int64_t layers);

// Sizes of heads, by kind, their rotation and the widths of ffns. `divisors`: of frequencies
// (GgufRopeFactors::all).
void WriteGgufKinds(GgufKeys& keys, int64_t layers, absl::Span<const double> divisors);

}  // namespace tessera

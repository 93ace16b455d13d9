// How KV is cut into blocks where nobody says otherwise: what coordinator, worker and simulator
// must agree on.
#pragma once

#include <cstdint>

namespace tessera {

// Tokens per block. Short blocks share more of a prefix; long ones are read in longer runs where
// the blocks of a context are not numbered in sequence.
inline constexpr int32_t kDefaultBlockTokens = 64;

}  // namespace tessera

// Bounds on what a tokenizer file may ask for; far above any published one, low enough that a
// hostile file cannot take the memory or the time of the process. Constants.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::coordinator {

inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;
inline constexpr size_t kMaxUnusedIds = 65536;
inline constexpr size_t kMaxAddedTokenBytes = 1024;
inline constexpr size_t kMaxTokenBytes = 64 << 10;
inline constexpr size_t kMaxTokenizerFileBytes = 256 << 20;

}  // namespace tessera::coordinator

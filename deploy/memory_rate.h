// How fast this machine reads its memory: what a CPU worker's decoding is bound by.
#pragma once

namespace tessera::deploy {

// All cores that this process may use read a buffer beyond the caches, for about half a second.
// Bytes per second; 0: there is no memory for it. Blocks; thread-safe.
double MemoryReadBytesPerSecond();

}  // namespace tessera::deploy

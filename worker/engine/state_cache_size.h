// How much host memory a worker gives to states of prompts (kvcache/snapshot_index.h), and how many
// that are.
//
// Thread rule: pure functions, but for the log.
#pragma once

#include <cstdint>

namespace tessera::worker {

// --state-cache-memory-bytes; `asked` negative: not given. Then UsualStateCacheBytes
// (proto/layers/state_room.h).
int64_t StateCacheBytes(int64_t asked, int64_t free_bytes);

// States of `seat_bytes` each that `bytes` hold. As many as a replica may have where this worker
// keeps none.
int64_t SnapshotsIn(int64_t bytes, int64_t seat_bytes);

// Says in the log how many states of `seat_bytes` are kept, or that nothing of a prompt is.
void LogStateCache(int64_t snapshots, int64_t seat_bytes);

}  // namespace tessera::worker

#include "worker/engine/state_cache_size.h"

#include <algorithm>

#include "proto/layers/state_room.h"
#include "third_party/spdlog/log.h"

namespace tessera::worker {
namespace {

// What the leader looks through to evict one.
constexpr int64_t kMaxSnapshots = 4096;

}  // namespace

int64_t StateCacheBytes(int64_t asked, int64_t free_bytes) {
  return asked >= 0 ? asked : UsualStateCacheBytes(free_bytes);
}

int64_t SnapshotsIn(int64_t bytes, int64_t seat_bytes) {
  if (seat_bytes == 0) return kMaxSnapshots;
  return std::clamp<int64_t>(bytes / seat_bytes, 0, kMaxSnapshots);
}

void LogStateCache(int64_t snapshots, int64_t seat_bytes) {
  if (snapshots > 0) {
    Logger("worker").info(
        "prefix cache: layers keep a state of each sequence (gated delta nets); those of {} "
        "prompts are kept in {} bytes of host memory",
        snapshots, snapshots * seat_bytes);
    return;
  }
  Logger("worker").warn(
      "prefix cache: off, because layers keep a state of each sequence (gated delta nets), and "
      "the host memory for states of prompts has no room for one of {} bytes: raise "
      "--state-cache-memory-bytes, and --memory where the plan leaves nothing of it",
      seat_bytes);
}

}  // namespace tessera::worker

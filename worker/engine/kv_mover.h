// What moves KV for an engine: room for KV to come, and KV to send. worker/transfer does it over
// links; tests do it by hand.
//
// Thread rule: called by the engine's thread. Outcomes come on other threads, never from inside a
// call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

// Tokens [first, end) of a submission, in the blocks of the engine's pool.
struct KvPlace {
  uint64_t submission_id = 0;
  uint32_t attempt = 0;
  std::vector<int32_t> blocks;  // of the whole sequence
  int64_t first = 0;
  int64_t end = 0;
};

class KvMoverListener {
 public:
  virtual ~KvMoverListener() = default;
  // OK: all of it is in the blocks. Else none of it can be used, and nothing is written any more.
  virtual void OnKvArrived(uint64_t submission_id, uint32_t attempt,
                           const absl::Status& status) = 0;
  // OK: the receiver has all of it.
  virtual void OnKvSent(uint64_t submission_id, uint32_t attempt, const absl::Status& status) = 0;
};

class KvMover {
 public:
  // Ends what is under way, and waits for it.
  virtual ~KvMover() = default;
  // Before anything else. The listener outlives the mover.
  virtual void SetListener(KvMoverListener* listener) = 0;
  // Lets KV come; returns where it is to be sent. Its one outcome: all of it came, or none will.
  virtual v1::KvTarget Expect(const KvPlace& place, double lease_seconds) = 0;
  // Nothing is written there when this returns, and there is no outcome any more.
  virtual void Forget(const std::string& ticket) = 0;
  // The blocks must stay as they are until the outcome.
  virtual void Send(const v1::KvTarget& target, const KvPlace& place) = 0;
};

}  // namespace tessera::worker

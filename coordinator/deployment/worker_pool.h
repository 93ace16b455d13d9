// Membership: which workers exist, whether they are alive, what they said last. Decides nothing;
// deployment reads its snapshot and acts.
//
//   REGISTERED -> CONFIGURING -> READY        (deployment moves them)
//       READY  -> REGISTERED               (its replica ended, or it serves another plan)
//        any   -> LOST                        (heartbeats stopped) -> REGISTERED (registers again)
//       LOST   -> forgotten                   (forget_seconds later, when no plan names it)
//        any   -> FAILED                      (Configure failed)   -> CONFIGURING (tried again)
//
// Thread rule: thread-safe. Time is an argument (monotonic seconds). The change listener is called
// without locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/deployment/busy_window.h"
#include "proto/coordinator.pb.h"

namespace tessera::coordinator {

struct WorkerPoolOptions {
  double heartbeat_interval_seconds = 1.0;
  double heartbeat_timeout_seconds = 5.0;
  double forget_seconds = 600;  // after its last heartbeat a lost worker's name is forgotten
  std::string build_version;    // of this process: workers of another one are refused
  bool rehearsal = false;       // takes emulated devices, and no others
};

struct WorkerRecord {
  v1::RegisterRequest registration;
  v1::WorkerState state = v1::WORKER_STATE_REGISTERED;
  std::string detail;  // progress or reason, in words
  v1::EngineLoad load;
  v1::WorkerCounters counters;  // newest; of any plan epoch
  BusyWindow busy;
  v1::WorkerReady ready;
  uint64_t plan_epoch = 0;   // that it was configured for; 0: it was not
  int stale_heartbeats = 0;  // in a row, of another epoch
  std::string replica;       // empty: not in the plan
  double last_heartbeat_seconds = 0;
  uint64_t change = 0;  // of the pool, that made it what it is
};

// The records of a pool at one moment, to be refreshed: that costs what has changed since, a new
// snapshot costs all of them. One thread at a time.
struct WorkerCopy {
  std::map<std::string, WorkerRecord> workers;  // by name
  uint64_t changes = 0;                         // of the pool, that it has
};

class WorkerPool {
 public:
  explicit WorkerPool(WorkerPoolOptions options) : options_(options) {}

  // Called after every change of membership or state.
  void SetListener(std::function<void()> changed);

  // Idempotent. A known name with another incarnation is a restarted worker: it starts over.
  // ALREADY_EXISTS when a live worker of that name stands at another address; FAILED_PRECONDITION
  // when versions differ.
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request,
                                             double now_seconds);
  // NOT_FOUND: unknown name or incarnation, or lost meanwhile: register again. The load of a
  // heartbeat of another plan epoch than the one it was configured for is not believed; when the
  // next one is so too the worker is REGISTERED again, to be configured again.
  absl::Status Heartbeat(const v1::HeartbeatRequest& request, double now_seconds);
  // These names are never forgotten: a plan waits for them.
  void KeepNames(std::set<std::string> names);
  // Marks those silent for longer than the timeout LOST, and forgets names that were lost long ago.
  void ExpireSilent(double now_seconds);

  // Moves one worker to `state`; ignored when its incarnation is not `incarnation` any more, or it
  // is lost.
  void SetState(const std::string& name, uint64_t incarnation, v1::WorkerState state,
                std::string detail);
  void SetReady(const std::string& name, uint64_t incarnation, uint64_t plan_epoch,
                const v1::WorkerReady& ready);
  void SetReplica(const std::string& name, std::string replica);
  void SetLoad(const std::string& name, const v1::EngineLoad& load);

  std::map<std::string, WorkerRecord> Snapshot() const;
  // For whoever looks often: `copy` was empty, or refreshed from this pool before.
  void Refresh(WorkerCopy* copy) const;
  // Why a worker has FAILED; empty: it has not.
  std::string FailureOf(const std::string& name) const;

 private:
  absl::StatusOr<bool> TakeHeartbeat(const v1::HeartbeatRequest& request, double now_seconds);
  // With mutex_, before a record is changed.
  void Mark(WorkerRecord& worker) { worker.change = ++changes_; }
  void Changed();

  const WorkerPoolOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, WorkerRecord> workers_;
  std::set<std::string> kept_;
  uint64_t changes_ = 0;
  std::function<void()> changed_;
};

}  // namespace tessera::coordinator

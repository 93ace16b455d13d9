// The progress watchdog: which replicas have requests to work on and yet make no step. A worker may
// be alive (its heartbeats come) and stuck all the same, in a kernel, a collective or a lock.
//
//   moving -> stalled   (sequences are open, and its pulse has stood still for the timeout)
//   stalled -> moving   (its pulse moves; that its clients have given up does not count)
//
// Thread rule: thread-safe. Time is an argument (monotonic seconds).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/request_flow.h"
#include "proto/plan.pb.h"

namespace tessera::coordinator {

// One ready replica at one moment.
struct ReplicaProgress {
  std::string replica;
  // Changes with every step: the steps that its workers reported, and the messages its leader sent.
  uint64_t pulse = 0;
  int64_t sequences = 0;             // open at this replica
  int64_t prefilling_sequences = 0;  // of these, without a first token yet
  // The rank with the fewest steps: where one rank is stuck, the others wait for it.
  std::string worker;
  int stage = 0;
  int rank = 0;
};

// What the watchdog is shown: `activity` (the ready replicas) joined with plan and heartbeats.
std::vector<ReplicaProgress> JoinProgress(const v1::DeploymentPlan& plan,
                                          const std::map<std::string, WorkerRecord>& workers,
                                          const std::vector<ReplicaActivity>& activity);

struct Stall {
  ReplicaProgress last;  // as it was seen last
  double seconds = 0;    // since its last step, or since it got work
};

// "replica r: no step for 60 s with 3 sequences in decode; worker w/0 (stage 0, rank 0) is behind"
std::string Describe(const Stall& stall);

class ProgressWatch {
 public:
  struct Changes {
    std::vector<Stall> stalled;       // since this call
    std::vector<std::string> moving;  // replicas that were stalled and go on
  };

  // 0: nothing ever counts as stalled.
  explicit ProgressWatch(double timeout_seconds) : timeout_seconds_(timeout_seconds) {}

  // `replicas`: all that are ready now; what is missing is forgotten.
  Changes Update(const std::vector<ReplicaProgress>& replicas, double now_seconds);
  std::vector<Stall> stalled() const;

 private:
  struct Watched {
    Stall stall;
    double since_seconds = 0;  // last step, or last moment without work
    bool stalled = false;
  };

  const double timeout_seconds_;
  mutable std::mutex mutex_;
  std::map<std::string, Watched> watched_;  // by replica
};

}  // namespace tessera::coordinator

// Which replicas of the plan in force have become slow (scheduler/slowdown.h), since when, and
// which of their workers it is: in a replica of several all wait for the slowest, so that only the
// time that each computes tells them apart.
//
// Thread rule: thread-safe. Time is an argument (monotonic seconds).
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/deployment/worker_pool.h"
#include "proto/plan.pb.h"
#include "scheduler/slowdown.h"

namespace tessera::coordinator {

// A replica this many times slower than before is worth a plan without the device that holds it up.
inline constexpr double kLeftOutFactor = 3;

struct Straggler {
  std::string replica;
  double factor = 1;                      // how many times longer its steps take than they did
  double seconds = 0;                     // for so long
  double much_seconds = 0;                // kLeftOutFactor times at least, for so long
  std::vector<std::string> workers = {};  // that compute for longer; empty: its links are slow
};

// "slow: its steps take 4.0 times as long as before, for 12 s (worker w/0); it gets fewer requests"
std::string Describe(const Straggler& straggler);

class StragglerWatch {
 public:
  // A few times a second. Logs who becomes slow and who no longer is.
  void Update(const v1::DeploymentPlan& plan, const std::map<std::string, WorkerRecord>& workers,
              double now_seconds);
  // Those that are slow, by name.
  std::vector<Straggler> stragglers() const;
  // Their factors, by replica.
  std::map<std::string, double> factors() const;

 private:
  // With mutex_ held.
  void ObserveWorkers(const v1::Replica& replica,
                      const std::map<std::string, WorkerRecord>& workers,
                      const v1::EngineLoad& leader, double now_seconds);
  void NoteChange(const v1::Replica& replica, double now_seconds);

  mutable std::mutex mutex_;
  scheduler::SlowdownWatch replicas_, workers_;  // the second: of replicas of several workers
  std::map<std::string, double> uptimes_;  // of workers_: of the counters that were taken last
  struct Slow {
    Straggler straggler;
    double since_seconds = 0;
    double much_since_seconds = 0;  // kLeftOutFactor times at least
    double logged_factor = 1;
  };
  std::map<std::string, Slow> slow_;  // by replica
};

}  // namespace tessera::coordinator

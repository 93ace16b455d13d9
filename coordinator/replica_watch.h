// What the replicas of all served models do, in the words of /ready, /health, `tessera status` and
// the log: ready, waiting for something, or stalled.
//
// Thread rule: thread-safe; Watch: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/progress_watch.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/request_flow.h"
#include "coordinator/model_host.h"

namespace tessera::coordinator {

class ReplicaWatch {
 public:
  using Hosts = std::vector<std::unique_ptr<ModelHost>>;

  // All outlive it. A ready replica with requests and without a step for `stall_seconds` is
  // stalled; 0: none ever is.
  ReplicaWatch(const Hosts& hosts, const WorkerPool& pool, const Deployment& deployment,
               double stall_seconds)
      : hosts_(hosts), pool_(pool), deployment_(deployment), progress_(stall_seconds) {}

  // About once a second. Logs the replicas that stall and that go on, and the plan's devices that
  // have no live worker, once per change.
  void Watch(double now_seconds);

  // UNAVAILABLE while no replica takes requests, or all are stalled: why.
  absl::Status Readiness() const;
  // A line each.
  std::vector<std::string> Stalled() const;
  std::vector<std::string> Waiting() const;

  int64_t requests_in_flight() const;

 private:
  std::vector<ReplicaActivity> Activity() const;
  void WatchDevices(std::string missing);

  const Hosts& hosts_;
  const WorkerPool& pool_;
  const Deployment& deployment_;
  ProgressWatch progress_;
  WorkerCopy workers_;           // of Watch
  std::string missing_devices_;  // as logged last
};

}  // namespace tessera::coordinator

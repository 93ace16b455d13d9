// Measures a cluster: every live worker, then the links between their machines.
//
// Workers of one machine are measured at the same time, because they serve at the same time: they
// share its memory's bandwidth, and its cores where there are more workers than cores. All else is
// measured one after the other, so that no measurement disturbs another one.
//
// Thread rule: Measure blocks, for seconds per machine and up to two per link; one at a time.
// Cancel from any thread. Every call of a worker has a deadline.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/deployment/worker_tls.h"
#include "proto/worker.grpc.pb.h"

namespace grpc {
class ClientContext;
}

namespace tessera::coordinator {

// Which links are measured: between the first workers of each pair of machines, and between the
// first two of each machine that has two. A worker "machine/index" is on `machine`; one without
// index is a machine of its own. Indices count as numbers.
std::vector<std::pair<std::string, std::string>> PairsToProbe(
    const std::vector<std::string>& workers);

// The workers of each machine, which are measured together; machines and workers in the order of
// their names, indices as numbers.
std::vector<std::vector<std::string>> WorkersByMachine(const std::vector<std::string>& workers);

class ClusterProfile {
 public:
  explicit ClusterProfile(std::string cluster_token, WorkerTls tls = nullptr)
      : cluster_token_(std::move(cluster_token)), tls_(std::move(tls)) {}

  // `go_on` is asked before each measurement; its error ends them. FAILED_PRECONDITION: no worker
  // is alive. Errors of a worker name it and what to do.
  absl::StatusOr<v1::ProfileClusterReply> Measure(
      const std::map<std::string, WorkerRecord>& workers,
      const std::function<absl::Status()>& go_on);
  // Ends this Measure and all later ones with CANCELLED.
  void Cancel();

 private:
  std::unique_ptr<v1::Worker::Stub> StubOf(const WorkerRecord& worker) const;
  // Calls a worker with its deadline and token; `call` does the call.
  absl::Status Ask(double timeout_seconds,
                   const std::function<absl::Status(grpc::ClientContext&)>& call);
  // `window_seconds` as in ProfileRequest.
  absl::StatusOr<v1::ProfileReply> MeasureWorker(const WorkerRecord& worker, double window_seconds);
  // All at the same time, in the order of `names`; the error of the first that failed.
  absl::StatusOr<std::vector<v1::ProfileReply>> MeasureMachine(
      const std::vector<std::string>& names, const std::map<std::string, WorkerRecord>& workers);
  absl::StatusOr<v1::ProbeLinkReply> MeasureLink(const WorkerRecord& from, const WorkerRecord& to);

  const std::string cluster_token_;
  const WorkerTls tls_;
  std::mutex mutex_;
  bool cancelled_ = false;
  std::set<grpc::ClientContext*> asking_;  // of the calls under way
};

}  // namespace tessera::coordinator

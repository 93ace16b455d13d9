// The gRPC edge of membership (proto/coordinator.proto): Register and Heartbeat for workers,
// CheckWorker before there is one, GetCluster and ProfileCluster for people.
//
// Closed by default: with a cluster token set, workers must carry it on every call; GetCluster and
// ProfileCluster need the admin key (admin_access.h). Thread rule: thread-safe. Never blocks:
// ProfileCluster, CheckWorker, and a Register whose name is taken run on a thread each, one call at
// a time; a client of the first that goes away ends it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/deployment/admin_access.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/straggler_watch.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/deployment/worker_tls.h"
#include "coordinator/flow/request_flow.h"

namespace grpc {
class Service;
}

namespace tessera::coordinator {

// One served model.
struct ClusterModel {
  std::string name = {};              // served
  std::string speculation = {};       // as in v1::ModelStatus
  std::string folder = {};            // where workers look for the checkpoint
  std::string fingerprint = {};       // likewise
  const RequestFlow* flow = nullptr;  // its requests; outlives the service
};

struct ClusterServiceOptions {
  std::vector<ClusterModel> models;  // at least one, in the order of the flags
  std::string cluster_token;         // empty: none is asked for
  WorkerTls worker_tls;
  ClusterNow cluster_certificates;            // one of which workers must prove to own; empty: none
  std::function<std::string()> token_advice;  // what a worker without it does
  AdminAccess admin;
  std::string build_version;                           // of this process
  std::function<double()> now_seconds;                 // monotonic
  std::function<std::vector<Straggler>()> stragglers;  // may be empty
  // Whether this process takes workers; not OK: why they shall go to another one. May be empty.
  std::function<absl::Status()> takes_workers;
  std::function<uint64_t()> leader_term;    // of this coordinator now; empty: it is the only one
  std::function<void(uint64_t)> hear_term;  // that a worker obeys, above leader_term; may be empty
};

// SampleRates is for main's ticker, about once a second.
class ClusterService {
 public:
  virtual ~ClusterService() = default;
  virtual grpc::Service* service() = 0;
  virtual void SampleRates() = 0;
  // What GetCluster tells.
  virtual v1::GetClusterReply Describe() = 0;
};

// Both must outlive the service.
std::unique_ptr<ClusterService> MakeClusterService(ClusterServiceOptions options, WorkerPool& pool,
                                                   const Deployment& deployment);

}  // namespace tessera::coordinator

// Keeps this worker known to its coordinator: registers, sends heartbeats, and registers again when
// the coordinator forgot it or was restarted. Never gives up; every call has a deadline and every
// wait between calls a bound.
//
// Thread rule: one thread of its own; Stop from any thread, it waits for the call under way to be
// cancelled.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "proto/coordinator.grpc.pb.h"
#include "tls/client_tls.h"

namespace grpc {
class ClientContext;
}

namespace tessera::worker {

struct RegistrationOptions {
  // host:port, or several with commas between: while one does not answer the next is asked.
  std::string coordinator;
  std::string cluster_token;    // empty: none is sent
  ClientTls tls;                // of the coordinator's ports
  bool tls_of_cluster = false;  // it comes from --cluster-tls, not from --tls-ca
  v1::RegisterRequest request;  // plan_epoch is filled in each time
  std::function<uint64_t()> plan_epoch;
  std::function<v1::EngineLoad()> load;
  std::function<v1::WorkerCounters()> counters;  // empty: none are sent
  std::function<uint64_t()> leader_term;  // that this worker obeys; empty, or 0: none is sent
  double call_timeout_seconds = 5;
  double min_backoff_seconds = 0.1;  // doubles from here ...
  double max_backoff_seconds = 5;    // ... to here, of several coordinators to 0.5
  double say_again_seconds = 10;     // how often a failure that lasts is logged
};

class Registration {
 public:
  explicit Registration(RegistrationOptions options);
  ~Registration() { Stop(); }

  void Stop();
  bool registered() const;

 private:
  struct Coordinator {
    std::string address;
    std::unique_ptr<v1::Coordinator::Stub> stub;
    std::string last_said;  // the same failure is logged again only after say_again_seconds
    std::chrono::steady_clock::time_point said_at;
  };

  void Loop();
  absl::Status Register();
  absl::Status Heartbeat();
  absl::Status Call(const std::function<grpc::Status(grpc::ClientContext*)>& call);
  void Say(const absl::Status& status);
  bool Wait(double seconds);  // false: stop

  const RegistrationOptions options_;
  std::vector<Coordinator> coordinators_;  // at least one
  size_t current_ = 0;                     // of these, that is asked
  double heartbeat_interval_seconds_ = 1;
  std::string last_notice_;  // of the coordinator's, in answers to heartbeats

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  bool registered_ = false;
  grpc::ClientContext* call_ = nullptr;  // under way
  std::thread thread_;
};

}  // namespace tessera::worker

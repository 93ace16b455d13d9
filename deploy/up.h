// `tessera up`: a coordinator and local workers in one go, until Ctrl-C.
// Thread rule: one thread; blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/cluster_client.h"
#include "deploy/device_choice.h"
#include "deploy/local_workers.h"
#include "proto/coordinator.pb.h"
#include "tls/certificates.h"
#include "tls/client_tls.h"

namespace tessera::deploy {

struct UpOptions {
  std::vector<std::string> models;  // as the coordinator takes them: FOLDER or NAME=FOLDER
  int workers = 0;                  // 0: one per core, two at most, or all that are named below
  // Those that --cluster or --plan names; empty: local/0, local/1, ...
  std::vector<LocalWorker> named_workers;
  // What is to be known of the named workers' devices: lines that are printed before they start.
  std::vector<std::string> device_notes;
  // --devices: one worker each, instead of CPU workers. As many as are named, where some are.
  std::vector<DeviceChoice> devices;
  double gpu_memory_utilization = 0.9;
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  uint16_t grpc_port = 8001;
  std::string cpu_isa = "auto";
  std::string bin_dir;  // empty: beside this program
  std::string log_dir;  // empty: a new folder under the system's temporary one
  double ready_timeout_seconds = 600;
  double shutdown_timeout_seconds = 30;
  std::vector<std::string> api_keys;  // of --api-key
  std::string api_key_file;
  std::string first_key;  // of both; empty: clients need none
  // Beyond loopback, a file that is not named is made in the folder of the logs.
  std::string admin_key_file;
  std::string admin_key;  // what that file says
  std::string cluster_token_file;
  CertificateFiles certificates;               // of the coordinator's ports; none: plain
  std::string cluster_tls_file;                // of coordinator and workers (tls/cluster_tls.h)
  std::vector<std::string> coordinator_flags;  // passed through
  // Describes the workers, in YAML, for the coordinator to plan for; empty: none but what its flags
  // name.
  std::string description;
};

// Where the deployment that is up can be reached from this machine.
struct UpAddresses {
  std::string http;  // host:port
  std::string grpc;
  std::string admin_key_file;  // empty: `tessera status` finds the key, or none is asked for
  std::string admin_key;
  ClientTlsFiles tls;  // this deployment's certificate as its own authority; none: plain

  CoordinatorFlags coordinator() const { return {grpc, admin_key_file, tls}; }
  std::string url() const { return (tls.ca.empty() ? "http://" : "https://") + http; }
};

// Returns when a signal came and everything was stopped, or with the reason why nothing came to
// serve: the coordinator or all workers ended (with a log), or workers did not become ready in
// time. `when_ready` is called once all workers serve that do not end again and again. If it
// returns an error, or `once`, everything is stopped at once. From then on what ends, the
// coordinator too, is started again after pauses that grow.
absl::Status Up(
    const UpOptions& options, bool once,
    const std::function<absl::Status(const UpAddresses&, const v1::GetClusterReply&)>& when_ready);

}  // namespace tessera::deploy

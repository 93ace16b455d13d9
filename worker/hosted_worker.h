// One worker of this process: a device, the ports that it is reached at, and its place with the
// coordinator. Most processes have one; those of a rehearsal have one for each device of a machine.
//
// Thread rule: the main thread. Ownership: the device is the worker's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/engine_setup.h"
#include "worker/worker_device.h"
#include "worker/worker_options.h"

namespace tessera::worker {

// What all workers of a process share.
struct HostingTerms {
  std::string token;         // of the cluster; empty: none is asked for
  std::string folder;        // for Unix sockets; empty: there is none
  double start_seconds = 0;  // of the process
  // As of KvOutboxOptions. May be empty.
  std::function<void(const v1::KvPiece&)> kv_pace = nullptr;
  // Changes what a worker is set up with, once it has its device and links. May be empty.
  std::function<void(SetupOptions*)> change_setup = nullptr;
};

class HostedWorker {
 public:
  // Measures the device.
  static absl::StatusOr<std::unique_ptr<HostedWorker>> Make(const WorkerOptions& options,
                                                            WorkerDevice device);
  virtual ~HostedWorker() = default;

  // Listens and registers. Once.
  virtual absl::Status Start(const HostingTerms& terms) = 0;
  virtual const kernels::Device& device() const = 0;
  // Refuses what is new, waits until sequences ended or the time is over, then ends the rest.
  virtual void Drain(double seconds) = 0;
  // Leaves the coordinator and closes its ports. After Drain.
  virtual void Close() = 0;
};

}  // namespace tessera::worker

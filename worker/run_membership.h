// A worker's part in a run: the cluster token that it shows and asks for, and the folder for its
// Unix sockets (proto/run_folder.h).
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/run_folder.h"
#include "worker/worker_options.h"

namespace tessera::worker {

struct RunMembership {
  std::string token;                  // empty: none is asked for
  std::unique_ptr<RunFolder> folder;  // null: there is none; its sockets go before it
};

// The token of --cluster-token-file. Without one it is what a coordinator on this machine's
// loopback keeps for its user; this waits until that coordinator runs, since it may be a new one.
// No token where it keeps none. CANCELLED once `stopped` says so. Errors name the file.
absl::StatusOr<RunMembership> JoinRun(const WorkerOptions& options,
                                      const std::function<bool()>& stopped);

}  // namespace tessera::worker

// The workers of devices that compute nothing, all in one process: as many as --device names kinds,
// from the index of --name on.
//
// Thread rule: the main thread. It outlives the workers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/emulation/emulation.h"
#include "worker/hosted_worker.h"
#include "worker/worker_options.h"

namespace tessera::worker {

class EmulatedWorkers {
 public:
  // Appends the workers. Errors name the flag or the file.
  static absl::StatusOr<std::unique_ptr<EmulatedWorkers>> Make(
      const WorkerOptions& options, std::vector<std::unique_ptr<HostedWorker>>* workers);

  // Puts into `terms` what the worker of that number is to be started with.
  void Change(size_t worker, HostingTerms* terms) const;
  // How late steps ended, into the rehearsal's folder, as MACHINE.figures.json; once a second, or
  // where it is the `last` time. Nothing without a folder.
  void WriteFigures(bool last);

 private:
  struct Named {
    std::string kind, name;
  };

  explicit EmulatedWorkers(std::unique_ptr<Emulation> emulation)
      : emulation_(std::move(emulation)) {}

  const std::unique_ptr<Emulation> emulation_;
  std::vector<Named> workers_;
  double written_seconds_ = 0;
};

}  // namespace tessera::worker

// Failures that kernels report in memory, of which CUDA knows nothing: a wait for another device
// that took too long. A stream that runs such kernels asks wherever its host has waited for it.
// Thread-safe.
#pragma once

#include "absl/status/status.h"

namespace tessera::kernels::cuda {

class KernelReports {
 public:
  virtual ~KernelReports() = default;
  // What kernels that have ended report; final once it is an error. Cheap.
  virtual absl::Status failure() const = 0;
  // The host has waited so long for the stream, and still does: the place to end kernels that wait
  // for another device too long. From any thread.
  virtual void WhileWaiting(double /*seconds*/) const {}
};

}  // namespace tessera::kernels::cuda

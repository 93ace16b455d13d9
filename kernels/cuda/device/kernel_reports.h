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
};

}  // namespace tessera::kernels::cuda

// The way of weights to a GPU: through slots of pinned host memory, which are filled in turn while
// the copy of the slot before runs.
//
// Thread-safe: each call of Upload has a ring to itself; as many are made as calls run at once, and
// kept. Freed with the object, which no call may outlive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class WeightRings {
 public:
  // The size of a slot, unless one row is longer.
  static constexpr int64_t kSlotBytes = int64_t{1} << 20;

  // Rings of the device with this index; `health` is its, and must outlive this.
  WeightRings(int device_index, CudaHealth* health)
      : device_index_(device_index), health_(health) {}
  ~WeightRings();
  WeightRings(const WeightRings&) = delete;
  WeightRings& operator=(const WeightRings&) = delete;

  // Writes rows [first, first + count) of what is uploaded, one behind the other.
  using Fill = std::function<absl::Status(int64_t first, int64_t count, std::byte* rows)>;
  // Blocks until all `rows` rows are in the device's memory; for a bounded time, see CudaHealth.
  // Errors of `fill` end it. ResourceExhausted where no host memory can be pinned.
  absl::Status Upload(std::byte* device, int64_t rows, int64_t row_bytes, const Fill& fill);

 private:
  struct Slot {
    HostBuffer memory;
    cudaStream_t stream = nullptr;
  };
  struct Ring {
    std::array<Slot, 2> slots;
  };

  absl::StatusOr<std::unique_ptr<Ring>> TakeRing();
  absl::Status Reserve(Slot& slot, int64_t size_bytes);
  absl::Status Copy(Ring& ring, std::byte* device, int64_t rows, int64_t row_bytes,
                    const Fill& fill);

  const int device_index_;
  CudaHealth* const health_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

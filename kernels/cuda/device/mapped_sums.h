// Sums of ranks by kernels that meet in each other's memory, or in pinned memory, which the ranks'
// processes share (kernels/cuda/sums/mapped_sum.h). Contract, thread rule and errors:
// kernels/collectives/device_sums.h.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/device/kernel_reports.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sums/mapped_sum.h"
#include "kernels/cuda/sums/rank_inboxes.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class MappedSums final : public DeviceSums {
 public:
  // `memory`: MappedSumBytes(size), zeros before the first rank begins, whole pages, the same on
  // every rank; kept. All ranks at once: it waits for them, for some seconds at most, to find out
  // whether their devices are peers (rank_inboxes.h); that no rank came is no error here. A wait
  // for a rank ends after `timeout_seconds`, and earlier than `health` would lose the device.
  // ResourceExhausted, FailedPrecondition: the system does not pin the memory, or the device cannot
  // map it.
  static absl::StatusOr<std::unique_ptr<DeviceSums>> Create(int rank, int size,
                                                            std::shared_ptr<std::byte> memory,
                                                            double timeout_seconds,
                                                            int device_index, CudaHealth* health);
  ~MappedSums() override;

  int rank() const override;
  int size() const override;
  int64_t max_bytes() const override;
  std::string transport() const override;
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override;
  absl::Status Broadcast(const TensorView& values, int root, Stream& stream) override;
  void Abort(const absl::Status& reason) override;
  absl::Status status() const override;
  std::chrono::nanoseconds wait_time() const override;

 private:
  class Shared;
  MappedSums(std::shared_ptr<Shared> shared, CudaHealth* health)
      : shared_(std::move(shared)), health_(health) {}

  absl::Status Enqueue(const char* name, const TensorView& values, int root, Stream& stream);

  // Pins the memory, meets the other ranks and fills params_.
  absl::Status Map(std::shared_ptr<std::byte> memory, int device_index);
  absl::Status MakeState();

  const std::shared_ptr<Shared> shared_;  // streams keep it too
  CudaHealth* const health_;
  bool is_pinned_ = false;
  std::unique_ptr<RankInboxes> inboxes_;
  MappedSumParams params_;  // but for the values
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

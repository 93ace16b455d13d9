// Two GPUs of which the one sends to the other by NCCL: a communicator of two ranks. Contract,
// thread rule and errors: kernels/collectives/device_pair.h.
//
// A communicator that is given up is aborted even when it is healthy: its peer may be gone, and
// whoever is not finds that out when it next asks.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_pair.h"
#include "kernels/cuda/device/nccl_comm.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class NcclPair final : public DevicePair {
 public:
  // Steps run beside it, and other pairs.
  static constexpr int kMaxCtas = 4;

  static absl::StatusOr<std::unique_ptr<DevicePair>> Create(std::unique_ptr<BoundedComm> comm,
                                                            int64_t memory_bytes);
  ~NcclPair() override;

  absl::Span<std::byte> memory() const override { return memory_; }
  absl::Status Send(int64_t bytes, double timeout_seconds,
                    const std::function<bool()>& cancelled) override;
  absl::Status Receive(int64_t bytes, double timeout_seconds,
                       const std::function<bool()>& cancelled) override;
  bool usable() const override { return usable_.load(std::memory_order_acquire); }

 private:
  explicit NcclPair(std::unique_ptr<BoundedComm> comm) : comm_(std::move(comm)) {}
  absl::Status Check(int64_t bytes) const;
  absl::Status Settle(NcclResult result, const char* what, double timeout_seconds,
                      const std::function<bool()>& cancelled);

  const std::unique_ptr<BoundedComm> comm_;
  absl::Span<std::byte> memory_;
  std::atomic<bool> usable_{true};
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

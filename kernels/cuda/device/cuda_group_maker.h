// How a CUDA device reaches others without the host: by NCCL, where that is found, and for small
// sums of ranks on one machine in memory that their devices reach (mapped_sums.h: MapSums waits,
// for some seconds, for the other ranks, who are to call it at once). Contract: group_maker.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kernels/collectives/group_maker.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/device/nccl_group.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaGroupMaker final : public GroupMaker {
 public:
  // `health` must outlive what is made.
  CudaGroupMaker(const CudaDeviceOptions& options, CudaHealth* health);

  std::string device_id() const override { return uuid_; }
  std::string library() const override { return nccl_.has_value() ? nccl_->library() : ""; }
  absl::StatusOr<std::string> NewId() override;
  absl::StatusOr<std::unique_ptr<Group>> Join(int rank, int size, const std::string& id,
                                              const GroupOptions& options, double join_seconds,
                                              const std::function<bool()>& cancelled) override;
  absl::StatusOr<std::unique_ptr<DevicePair>> JoinPair(
      int rank, const std::string& id, int64_t memory_bytes, double join_seconds,
      const std::function<bool()>& cancelled) override;
  std::string sums_kind() const override;
  int64_t SumsMemoryBytes(int size) const override;
  absl::StatusOr<std::unique_ptr<DeviceSums>> MapSums(int rank, int size,
                                                      std::shared_ptr<std::byte> memory,
                                                      const GroupOptions& options) override;

 private:
  absl::Status NoLibrary() const;

  const std::string uuid_;
  const bool maps_sums_;
  const int device_index_;
  CudaHealth* const health_;
  std::optional<NcclGroupMaker> nccl_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

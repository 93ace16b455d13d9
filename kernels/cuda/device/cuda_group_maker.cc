#include "kernels/cuda/device/cuda_group_maker.h"

#include <utility>

#include "kernels/cuda/device/cuda_ops.h"
#include "kernels/cuda/device/mapped_sums.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// Changes with the memory's layout and with what the kernel does.
constexpr int kSumsVersion = 2;

}  // namespace

CudaGroupMaker::CudaGroupMaker(const CudaDeviceOptions& options, CudaHealth* health)
    : uuid_(options.uuid),
      maps_sums_(options.maps_sums),
      device_index_(options.index),
      health_(health) {
  if (options.nccl == nullptr) return;
  nccl_.emplace(*options.nccl, options.nccl_version, options.index, health);
}

absl::Status CudaGroupMaker::NoLibrary() const {
  return absl::FailedPreconditionError(StrCat(health_->device(), ": there is no NCCL"));
}

absl::StatusOr<std::string> CudaGroupMaker::NewId() {
  if (!nccl_.has_value()) return NoLibrary();
  return nccl_->NewId();
}

absl::StatusOr<std::unique_ptr<Group>> CudaGroupMaker::Join(
    int rank, int size, const std::string& id, const GroupOptions& options, double join_seconds,
    const std::function<bool()>& cancelled) {
  if (!nccl_.has_value()) return NoLibrary();
  return nccl_->Join(rank, size, id, options, join_seconds, cancelled);
}

absl::StatusOr<std::unique_ptr<DevicePair>> CudaGroupMaker::JoinPair(
    int rank, const std::string& id, int64_t memory_bytes, double join_seconds,
    const std::function<bool()>& cancelled) {
  if (!nccl_.has_value()) return NoLibrary();
  return nccl_->JoinPair(rank, id, memory_bytes, join_seconds, cancelled);
}

std::string CudaGroupMaker::sums_kind() const {
  return maps_sums_ ? StrCat(CudaOps::kPlatformName, " ", kSumsVersion) : "";
}

int64_t CudaGroupMaker::SumsMemoryBytes(int size) const { return MappedSumBytes(size); }

absl::StatusOr<std::unique_ptr<DeviceSums>> CudaGroupMaker::MapSums(
    int rank, int size, std::shared_ptr<std::byte> memory, const GroupOptions& options) {
  return MappedSums::Create(rank, size, std::move(memory), options.timeout_seconds, device_index_,
                            health_);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

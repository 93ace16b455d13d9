#include "kernels/cuda/device/nccl_pair.h"

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

absl::StatusOr<std::unique_ptr<DevicePair>> NcclPair::Create(std::unique_ptr<BoundedComm> comm,
                                                             int64_t memory_bytes) {
  std::unique_ptr<NcclPair> pair(new NcclPair(std::move(comm)));
  const auto memory = pair->comm_->Allocate(static_cast<size_t>(memory_bytes));
  if (!memory.ok()) return memory.status();
  pair->memory_ = {*memory, static_cast<size_t>(memory_bytes)};
  return pair;
}

NcclPair::~NcclPair() {
  comm_->Abort();
  cudaFree(memory_.data());
}

absl::Status NcclPair::Check(int64_t bytes) const {
  const std::string& device = comm_->health().device();
  if (!usable())
    return absl::UnavailableError(StrCat(device, ": NCCL: the communicator was aborted"));
  if (bytes <= 0 || bytes > static_cast<int64_t>(memory_.size())) {
    return absl::InvalidArgumentError(
        StrCat(device, ": NCCL: ", bytes, " bytes in memory of ", memory_.size()));
  }
  return comm_->health().Check(cudaSetDevice(comm_->place().device_index), "choosing the device");
}

absl::Status NcclPair::Settle(NcclResult result, const char* what, double timeout_seconds,
                              const std::function<bool()>& cancelled) {
  absl::Status status = comm_->Settle(result, what, DeadlineAfter(timeout_seconds), cancelled);
  if (!status.ok()) usable_.store(false, std::memory_order_release);
  return status;
}

absl::Status NcclPair::Send(int64_t bytes, double timeout_seconds,
                            const std::function<bool()>& cancelled) {
  if (absl::Status status = Check(bytes); !status.ok()) return status;
  const NcclResult result =
      comm_->table().Send(memory_.data(), static_cast<size_t>(bytes), kNcclUint8, /*peer=*/1,
                          comm_->comm(), comm_->stream());
  return Settle(result, "a send", timeout_seconds, cancelled);
}

absl::Status NcclPair::Receive(int64_t bytes, double timeout_seconds,
                               const std::function<bool()>& cancelled) {
  if (absl::Status status = Check(bytes); !status.ok()) return status;
  const NcclResult result =
      comm_->table().Recv(memory_.data(), static_cast<size_t>(bytes), kNcclUint8, /*peer=*/0,
                          comm_->comm(), comm_->stream());
  return Settle(result, "a receive", timeout_seconds, cancelled);
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

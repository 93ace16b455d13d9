#include "kernels/cuda/device/mapped_sums.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "kernels/collectives/group_arguments.h"
#include "kernels/cuda/device/cuda_stream.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/host_memory.h"
#endif

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

// A kernel that waits ends before the device counts as lost: the part of that time that it has.
constexpr double kPartOfMaxWait = 0.5;
constexpr int kNoRoot = -1;

// Written by devices and other processes.
template <typename T>
T Read(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_acquire);
}

}  // namespace

// The memory as the host has it, and what the host knows of the group.
class MappedSums::Shared final : public KernelReports {
 public:
  Shared(int rank, int size, std::shared_ptr<std::byte> memory, double wait_seconds)
      : rank_(rank), size_(size), wait_seconds_(wait_seconds), memory_(std::move(memory)) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  double wait_seconds() const { return wait_seconds_; }
  std::byte* memory() const { return memory_.get(); }
  const MappedSumControl::Rank& own() const { return control().ranks[rank_]; }

  void End(const absl::Status& reason) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!reason_.ok()) return;
      reason_ = reason.ok() ? absl::CancelledError("the sums of ranks were ended") : reason;
    }
    uint32_t nobody = 0;
    std::atomic_ref<uint32_t>(control().ended_by)
        .compare_exchange_strong(nobody, static_cast<uint32_t>(rank_) + 1);
  }

  // A sum that came to its end is none, though another rank has gone since.
  absl::Status failure() const override {
    const uint64_t report = Read(own().failure);
    if (report == 0) return absl::OkStatus();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reason_.ok()) reason_ = Describe(report);
    return reason_;
  }

  // Also what ended the sums while none was under way.
  absl::Status status() const {
    if (absl::Status failed = failure(); !failed.ok()) return failed;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (reason_.ok() && Read(control().ended_by) != 0) reason_ = Ended();
    return reason_;
  }

 private:
  MappedSumControl& control() const { return *reinterpret_cast<MappedSumControl*>(memory_.get()); }
  absl::Status Ended() const {
    return absl::AbortedError(StrCat("rank ", Read(control().ended_by) - 1, " ended the group"));
  }
  absl::Status Describe(uint64_t report) const {
    const auto rank = static_cast<int>(report >> 48 & 0xff);
    switch (static_cast<MappedSumFailure>(report >> 56)) {
      case MappedSumFailure::kLate:
        return absl::DeadlineExceededError(StrCat("a sum of ranks: rank ", rank,
                                                  " did not come to rank ", rank_, " within ",
                                                  wait_seconds_, " s"));
      case MappedSumFailure::kOtherCall:
        return absl::FailedPreconditionError(
            StrCat("a sum of ranks: rank ", rank, " makes another call than rank ", rank_, ", of ",
                   CountOfCall(static_cast<uint32_t>(report)), " values"));
      case MappedSumFailure::kEnded:
      case MappedSumFailure::kNone: break;
    }
    return Ended();
  }

  const int rank_, size_;
  const double wait_seconds_;
  const std::shared_ptr<std::byte> memory_;
  mutable std::mutex mutex_;
  mutable absl::Status reason_;  // the first
};

absl::StatusOr<std::unique_ptr<DeviceSums>> MappedSums::Create(int rank, int size,
                                                               std::shared_ptr<std::byte> memory,
                                                               double timeout_seconds,
                                                               int device_index,
                                                               CudaHealth* health) {
  if (size < 2 || size > kMaxMappedRanks || rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(StrCat(health->device(), ": rank ", rank, " of ", size,
                                             " ranks; 2 to ", kMaxMappedRanks, " can sum"));
  }
  const double wait_seconds =
      std::min(timeout_seconds, kPartOfMaxWait * health->max_wait_seconds());
  auto shared = std::make_shared<Shared>(rank, size, memory, wait_seconds);
  std::unique_ptr<MappedSums> sums(new MappedSums(std::move(shared), health));
  absl::Status status = sums->Map(memory, device_index);
  // Nobody is to wait for this rank.
  if (!status.ok()) KeepInHostMemory(memory.get(), rank, "it maps no memory");
  if (status.ok()) status = sums->MakeState();
  if (!status.ok()) return status;
  return sums;
}

absl::Status MappedSums::Map(std::shared_ptr<std::byte> memory, int device_index) {
  absl::Status status = health_->Check(cudaSetDevice(device_index), "choosing the device");
  if (!status.ok()) return status;
  const auto bytes = static_cast<size_t>(MappedSumBytes(size()));
  const cudaError_t pinned =
      cudaHostRegister(memory.get(), bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (pinned != cudaSuccess) {
    cudaGetLastError();  // or the next launch of this thread would return it
    return absl::ResourceExhaustedError(
        StrCat(health_->device(), ": pinning ", bytes, " bytes of shared memory: ",
               cudaGetErrorString(pinned), "; raise the limit of locked memory (ulimit -l)"));
  }
  is_pinned_ = true;
  void* on_device = nullptr;
  status = health_->Check(cudaHostGetDevicePointer(&on_device, memory.get(), 0),
                          "mapping shared memory");
  if (!status.ok()) return status;
  inboxes_ = RankInboxes::Meet({.rank = rank(),
                                .size = size(),
                                .memory = std::move(memory),
                                .on_device = static_cast<std::byte*>(on_device),
                                .device_index = device_index});
  if (!inboxes_->in_peers()) {
    Logger("kernels").info("{}: {} devices meet in host memory, not in each other's: {}",
                           health_->device(), size(), inboxes_->why_host());
  }
  params_.control = static_cast<MappedSumControl*>(on_device);
  params_.inboxes = inboxes_->get();
  params_.rank = rank();
  params_.ranks = size();
  params_.max_wait_nanoseconds = static_cast<uint64_t>(shared_->wait_seconds() * 1e9);
  return absl::OkStatus();
}

absl::Status MappedSums::MakeState() {
  void* state = nullptr;
  absl::Status status =
      health_->Check(cudaMalloc(&state, sizeof(MappedSumState)),
                     "memory of sums of ranks, behind a trial of the devices' own "
                     "(--no-mapped-sums leaves both out)");
  if (!status.ok()) return status;
  params_.state = static_cast<MappedSumState*>(state);
  const MappedSumState first = {.begun = inboxes_->begun(), .failed = 0, .waited_nanoseconds = 0};
  return health_->Check(cudaMemcpy(state, &first, sizeof first, cudaMemcpyHostToDevice),
                        "memory of sums of ranks");
}

MappedSums::~MappedSums() {
  Abort(absl::CancelledError("this rank left its group"));
  inboxes_.reset();
  cudaFree(params_.state);
  if (is_pinned_) cudaHostUnregister(shared_->memory());
}

int MappedSums::rank() const { return shared_->rank(); }
int MappedSums::size() const { return shared_->size(); }
int64_t MappedSums::max_bytes() const {
  return kMaxMappedSumValues * static_cast<int64_t>(sizeof(float));
}
std::string MappedSums::transport() const {
  return inboxes_->in_peers() ? "the devices, in each other's memory"
                              : "the devices, in memory that all of them map";
}

absl::Status MappedSums::AllReduceSum(const TensorView& values, Stream& stream) {
  if (absl::Status status = CheckSum(values); !status.ok()) return status;
  return Enqueue("AllReduceSum", values, kNoRoot, stream);
}

absl::Status MappedSums::Broadcast(const TensorView& values, int root, Stream& stream) {
  if (absl::Status status = CheckBroadcast(values, root, size()); !status.ok()) return status;
  return Enqueue("Broadcast", values, root, stream);
}

absl::Status MappedSums::Enqueue(const char* name, const TensorView& values, int root,
                                 Stream& stream) {
  const int64_t bytes = DenseBytes(values);
  if (bytes == 0) return absl::OkStatus();
  if (bytes > max_bytes() || bytes % int64_t{sizeof(float)} != 0) {
    return absl::InvalidArgumentError(StrCat(name, ": ", bytes, " bytes; devices take up to ",
                                             max_bytes(), ", a multiple of ", sizeof(float)));
  }
  if (stream.owner() != health_) {
    return absl::InvalidArgumentError(
        StrCat(name, " of ", health_->device(), ": the stream belongs to another device"));
  }
  auto& own = static_cast<CudaStream&>(stream);
  own.Watch(shared_);
  if (!shared_->status().ok()) {
    return EnqueueHost<const Shared*>(
        stream, +[](const Shared* const& shared) { return shared->status(); }, shared_.get());
  }
  MappedSumParams params = params_;
  params.values = reinterpret_cast<float*>(values.data);
  params.count = bytes / int64_t{sizeof(float)};
  params.root = root;
  params.stream_failed = own.meetings_failed();
  own.Enqueue("a sum of ranks", &LaunchMappedSum, params);
  return absl::OkStatus();
}

void MappedSums::Abort(const absl::Status& reason) { shared_->End(reason); }

absl::Status MappedSums::status() const { return shared_->status(); }

std::chrono::nanoseconds MappedSums::wait_time() const {
  return std::chrono::nanoseconds(Read(shared_->own().waited_nanoseconds));
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

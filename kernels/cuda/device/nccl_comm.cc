#include "kernels/cuda/device/nccl_comm.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

using Clock = std::chrono::steady_clock;

// Most calls of a step end sooner, and a sleeper wakes up late.
constexpr std::chrono::milliseconds kSpin{2};
constexpr std::chrono::microseconds kPause{50};
// For the other ranks to end as well.
constexpr double kFinalizeSeconds = 5;

// What a thread that may never end says of its end.
struct Ended {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<BoundedComm>> BoundedComm::Create(
    const NcclTable& table, CudaHealth* health, const NcclPlace& place, const NcclId& id,
    Deadline deadline, const std::function<bool()>& cancelled) {
  absl::Status status = health->lost();
  if (status.ok()) status = health->Check(cudaSetDevice(place.device_index), "choosing the device");
  std::unique_ptr<BoundedComm> made(new BoundedComm(table, health, place));
  if (status.ok()) {
    status = health->Check(cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking),
                           "making a stream");
  }
  if (!status.ok()) return status;
  NcclConfig config;
  int version = 0;
  if (place.max_ctas > 0 && table.GetVersion(&version) == kNcclSuccess &&
      version >= NcclConfig::kVersionWithCtas) {
    config.LimitCtas(place.max_ctas);
  }
  const NcclResult begun =
      table.CommInitRankConfig(&made->comm_, place.size, id, place.rank, &config);
  status = made->Poll(begun, "joining the ranks", deadline, /*idle=*/nullptr, cancelled);
  if (!status.ok()) return status;
  return made;
}

BoundedComm::~BoundedComm() {
  (void)cudaSetDevice(place_.device_index);
  if (comm_ != nullptr && !stopped_.load(std::memory_order_acquire)) {
    const absl::Status flushed =
        Settle(table_.CommFinalize(comm_), "its end", DeadlineAfter(kFinalizeSeconds));
    if (flushed.ok()) table_.CommDestroy(std::exchange(comm_, nullptr));
  }
  Abort();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::StatusOr<std::byte*> BoundedComm::Allocate(size_t bytes) {
  absl::Status status = health_->Check(cudaSetDevice(place_.device_index), "choosing the device");
  void* memory = nullptr;
  const cudaError_t error = status.ok() ? cudaMalloc(&memory, bytes) : cudaSuccess;
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch of this thread would return it
    return absl::ResourceExhaustedError(
        StrCat(health_->device(), ": NCCL: no ", bytes,
               " bytes are left for what ranks exchange; lower --gpu-memory-utilization"));
  }
  status.Update(health_->Check(error, "NCCL"));
  if (!status.ok()) return status;
  return static_cast<std::byte*>(memory);
}

absl::Status BoundedComm::Enqueued(NcclResult result, const char* what, Deadline deadline) {
  return Poll(result, what, deadline, /*idle=*/nullptr, nullptr);
}

absl::Status BoundedComm::Settle(NcclResult result, const char* what, Deadline deadline,
                                 const std::function<bool()>& cancelled) {
  return Poll(result, what, deadline, stream_, cancelled);
}

absl::Status BoundedComm::Drain(cudaStream_t stream, const char* what, Deadline deadline) {
  return Poll(kNcclSuccess, what, deadline, stream, nullptr);
}

absl::Status BoundedComm::Refused(NcclResult result, const char* what) const {
  return absl::UnavailableError(StrCat(health_->device(), ": NCCL: ", what, ": ",
                                       table_.GetErrorString(result), " (",
                                       table_.GetLastError(nullptr), ")"));
}

absl::Status BoundedComm::Late(const char* what) const {
  return absl::DeadlineExceededError(
      StrCat(health_->device(), ": NCCL: ", what, ": another of the ", place_.size,
             " ranks did not come to rank ", place_.rank, " in time"));
}

absl::Status BoundedComm::Look(const char* what) const {
  NcclResult state = kNcclSuccess;
  const NcclResult asked = table_.CommGetAsyncError(comm_, &state);
  if (asked != kNcclSuccess) state = asked;
  const bool goes_on = state == kNcclSuccess || state == kNcclInProgress;
  return goes_on ? absl::OkStatus() : Refused(state, what);
}

absl::Status BoundedComm::Poll(NcclResult result, const char* what, Deadline deadline,
                               cudaStream_t idle, const std::function<bool()>& cancelled) {
  const Clock::time_point began = Clock::now();
  while (true) {
    if (is_stopped()) {
      return Fail(absl::CancelledError(StrCat(health_->device(), ": NCCL: ", what, ": stopped")));
    }
    if (comm_ == nullptr && (result == kNcclSuccess || result == kNcclInProgress)) {
      return absl::CancelledError(StrCat(health_->device(), ": NCCL: ", what, ": it was aborted"));
    }
    if (result == kNcclSuccess || result == kNcclInProgress) {
      NcclResult state = kNcclSuccess;
      const NcclResult asked = table_.CommGetAsyncError(comm_, &state);
      result = asked != kNcclSuccess ? asked : state;
    }
    if (result != kNcclSuccess && result != kNcclInProgress) {
      return Fail(Refused(result, what));
    }
    if (result == kNcclSuccess) {
      const cudaError_t error = idle != nullptr ? cudaStreamQuery(idle) : cudaSuccess;
      if (error != cudaErrorNotReady) {
        absl::Status status = health_->Check(error, what, idle != nullptr ? idle : stream_);
        return status.ok() ? status : Fail(std::move(status));
      }
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      return Fail(Late(what));
    }
    if (cancelled != nullptr && cancelled()) {
      return Fail(absl::CancelledError(StrCat(health_->device(), ": NCCL: ", what, ": cancelled")));
    }
    if (now - began > kSpin) std::this_thread::sleep_for(kPause);
  }
}

absl::Status BoundedComm::Fail(absl::Status reason) {
  Abort();
  return reason;
}

void BoundedComm::Abort() {
  if (comm_ == nullptr) return;
  const auto state = std::make_shared<Ended>();
  const auto abort = [state, index = place_.device_index, call = table_.CommAbort,
                      comm = std::exchange(comm_, nullptr)] {
    cudaSetDevice(index);
    call(comm);
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  };
  try {
    std::thread(abort).detach();
  } catch (const std::system_error& error) {
    (void)health_->Lose(
        StrCat(health_->device(), ": NCCL: no thread for an abort: ", error.what()));
    return;
  }
  const double bound_seconds = std::min(kAbortSeconds, health_->max_wait_seconds());
  std::unique_lock<std::mutex> lock(state->mutex);
  const bool ended = state->changed.wait_for(lock, std::chrono::duration<double>(bound_seconds),
                                             [&] { return state->ended; });
  if (!ended) {
    (void)health_->Lose(
        StrCat(health_->device(), ": NCCL: an abort did not end within ", bound_seconds, " s"));
  }
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

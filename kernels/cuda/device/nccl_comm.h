// One communicator of NCCL, and its stream, that never blocks its caller for longer than it was
// given.
//
// NCCL's calls only begin something; Settle polls until it is done on the GPU. After an error, or a
// wait that was too long, the communicator is aborted and of no more use. An abort runs on a thread
// of its own, since NCCL may keep it for ever: past kAbortSeconds the device is lost, and with it
// the process, which alone ends such a call.
//
// Thread rule: one thread at a time, but for Stop.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/driver/nccl_table.h"
#include "kernels/cuda/runtime.h"
#include "kernels/links/deadline.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

struct NcclPlace {
  int device_index = 0;  // of the runtime
  int rank = 0;
  int size = 0;
  int max_ctas = 0;  // thread blocks that a call takes of the GPU, from 2.17 on; 0: NCCL's choice
};

class BoundedComm {
 public:
  // Or as long as the device waits for anything, where that is less.
  static constexpr double kAbortSeconds = 10;

  // Waits for the other ranks until the deadline. DeadlineExceeded, Cancelled, or Unavailable with
  // NCCL's words. `table` is copied; `health` must outlive the communicator.
  static absl::StatusOr<std::unique_ptr<BoundedComm>> Create(
      const NcclTable& table, CudaHealth* health, const NcclPlace& place, const NcclId& id,
      Deadline deadline, const std::function<bool()>& cancelled);
  // Healthy: flushed, then destroyed, so that no other rank sees an error; else aborted.
  ~BoundedComm();

  const NcclTable& table() const { return table_; }
  NcclComm comm() const { return comm_; }  // null: it was aborted
  cudaStream_t stream() const { return stream_; }
  CudaHealth& health() const { return *health_; }
  const NcclPlace& place() const { return place_; }

  // Memory of the GPU for what is exchanged, which is beside what its Device may use, as NCCL's own
  // memory is; the caller frees it. ResourceExhausted: there is none left.
  absl::StatusOr<std::byte*> Allocate(size_t bytes);
  // Until what a call returned `result` for is handed to the stream: only then may other work be.
  absl::Status Enqueued(NcclResult result, const char* what, Deadline deadline);
  // Until the stream is done with it, too, or `cancelled` says so.
  absl::Status Settle(NcclResult result, const char* what, Deadline deadline,
                      const std::function<bool()>& cancelled = nullptr);
  // Until another stream is done with all that it has.
  absl::Status Drain(cudaStream_t stream, const char* what, Deadline deadline);
  // What NCCL says of calls that other streams have, without a wait. Late: why a wait for such a
  // call ends. Both leave the communicator to the caller.
  absl::Status Look(const char* what) const;
  absl::Status Late(const char* what) const;
  // Makes a wait of another thread, and every later one, end with Cancelled.
  void Stop() { stopped_.store(true, std::memory_order_release); }
  bool is_stopped() const { return stopped_.load(std::memory_order_acquire); }
  // Ends what the other ranks wait for, and returns when NCCL has, or the device is lost.
  void Abort();

 private:
  BoundedComm(const NcclTable& table, CudaHealth* health, const NcclPlace& place)
      : table_(table), health_(health), place_(place) {}
  // `idle`: until this stream is done, too; null: no stream is asked.
  absl::Status Poll(NcclResult result, const char* what, Deadline deadline, cudaStream_t idle,
                    const std::function<bool()>& cancelled);
  absl::Status Fail(absl::Status reason);
  absl::Status Refused(NcclResult result, const char* what) const;

  const NcclTable table_;
  CudaHealth* const health_;
  const NcclPlace place_;
  std::atomic<bool> stopped_{false};
  NcclComm comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

// A group of GPUs that exchange values by NCCL, whose pointers the host does not read.
//
// Sums are exchanges of contributions, added in rank order by a kernel of our own: the bits are
// those of every other group, whatever NCCL's own sums would give. Small sums are one gather,
// larger ones two exchanges of slices. Sums are enqueued on the step's own stream, and no host
// waits for them one by one: whoever waits for the stream looks after them, and ends the group when
// NCCL fails or the wait has taken GroupOptions::timeout_seconds, or most of what would lose the
// device. Now and then a sum is waited for, so that no stream has more work behind one that never
// ends than CUDA takes. Other calls wait for their end, on the thread of the stream, no longer than
// that timeout. Contract, thread rule and errors: group.h, with three differences: an error does
// not name the rank that did not come, where ranks make different calls the error is that of a late
// rank, and call_time leaves sums out.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/collectives/device_pair.h"
#include "kernels/collectives/host_group.h"
#include "kernels/cuda/device/nccl_comm.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class NcclGroup final : public HostGroup {
 public:
  // `library`: for transport(). ResourceExhausted: the GPU has no memory left for what is
  // exchanged, which is beside what its Device may use, as NCCL's own memory is.
  static absl::StatusOr<std::unique_ptr<Group>> Create(std::unique_ptr<BoundedComm> comm,
                                                       const std::string& library,
                                                       const GroupOptions& options);
  ~NcclGroup() override;
  std::string transport() const override { return library_; }
  bool takes_device_memory() const override { return true; }
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override;

 private:
  class Reports;

  NcclGroup(std::unique_ptr<BoundedComm> comm, const std::string& library,
            const GroupOptions& options);

  absl::Status SumNow(absl::Span<float> values) override;
  absl::Status BroadcastNow(absl::Span<std::byte> bytes, int root) override;
  absl::Status GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         int root) override;
  void WakeAll(const absl::Status& reason) override;

  // Gives `stream` a sum; returns when it has it.
  absl::Status SumOn(absl::Span<float> values, cudaStream_t stream);
  absl::Status SumInOneGather(absl::Span<float> values, Deadline deadline, cudaStream_t stream);
  absl::Status SumBySlices(absl::Span<float> values, Deadline deadline, cudaStream_t stream);
  // Adds the contributions at `in`, by rank.
  absl::Status AddRanks(const std::array<const float*, kMaxGroupSize>& in, absl::Span<float> out,
                        cudaStream_t stream);
  // What is wrong while a stream with sums is waited for, since so long.
  absl::Status Look(double waited_seconds);
  // Ends the communicator of a group that was aborted while a call had it.
  void EndAborted();
  // Bytes that each rank has, on every rank, in sizes_.
  absl::Status ExchangeSizes(int64_t own, Deadline deadline);
  // Sends outgoing(r) to every other rank r and receives incoming(r) from it, where they are not
  // empty.
  template <typename Outgoing, typename Incoming>
  NcclResult Exchange(const Outgoing& outgoing, const Incoming& incoming, cudaStream_t stream);
  absl::Status Usable() const;

  struct FreeOnDevice {
    void operator()(float* memory) const { cudaFree(memory); }
  };

  const std::string library_;
  const GroupOptions options_;
  // Contributions of ranks, on the GPU. Freed behind the communicator's end, which is bounded: CUDA
  // frees nothing before all kernels have ended.
  std::unique_ptr<float, FreeOnDevice> scratch_;
  const std::unique_ptr<BoundedComm> comm_;
  int64_t sums_ = 0;                                   // on streams of steps
  const std::shared_ptr<Reports> reports_;             // streams keep it too
  std::mutex call_mutex_;                              // held by a call, and by an abort of none
  std::array<int64_t, kMaxGroupSize + 1> sizes_ = {};  // by rank; then the own one
};

// Makes the groups of one GPU, as GroupMaker has them. NCCL takes no two slices of a GPU, nor one
// GPU twice.
class NcclGroupMaker {
 public:
  // `table` is copied; `health` must outlive the groups.
  NcclGroupMaker(const NcclTable& table, const std::string& version, int device_index,
                 CudaHealth* health)
      : table_(table), library_("NCCL " + version), device_index_(device_index), health_(health) {}

  const std::string& library() const { return library_; }
  absl::StatusOr<std::string> NewId();
  absl::StatusOr<std::unique_ptr<Group>> Join(int rank, int size, const std::string& id,
                                              const GroupOptions& options, double join_seconds,
                                              const std::function<bool()>& cancelled);
  absl::StatusOr<std::unique_ptr<DevicePair>> JoinPair(int rank, const std::string& id,
                                                       int64_t memory_bytes, double join_seconds,
                                                       const std::function<bool()>& cancelled);

 private:
  absl::StatusOr<std::unique_ptr<BoundedComm>> Open(NcclPlace place, const std::string& id,
                                                    double join_seconds,
                                                    const std::function<bool()>& cancelled) const;

  const NcclTable table_;
  const std::string library_;
  const int device_index_;
  CudaHealth* const health_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

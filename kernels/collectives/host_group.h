// What groups have in common whose calls wait for the other ranks: tensors are checked, calls are
// enqueued as host work, the first failure ends the group. A kind of group adds how bytes get from
// rank to rank, and whether they are the host's.
//
// Contract, thread rule and errors: group.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "absl/types/span.h"
#include "kernels/collectives/group.h"

namespace tessera::kernels {

class HostGroup : public Group {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  absl::Status AllReduceSum(const TensorView& values, Stream& stream) override;
  absl::Status Broadcast(const TensorView& values, int root, Stream& stream) final;
  absl::Status AllGather(const TensorView& in, const TensorView& out, Stream& stream) final;
  absl::Status Gather(const TensorView& in, const TensorView& out, int root, Stream& stream) final;
  void Abort(const absl::Status& reason) final;
  absl::Status status() const final;
  std::chrono::nanoseconds call_time() const final {
    return std::chrono::nanoseconds(call_nanoseconds_.load(std::memory_order_relaxed));
  }

 protected:
  static constexpr int kEveryRank = -1;

  HostGroup(int rank, int size) : rank_(rank), size_(size) {}

  // The calls themselves, on the stream's thread, of groups of two ranks or more, and gathers of
  // one rank's memory that the host does not read. A failure ends the group.
  virtual absl::Status SumNow(absl::Span<float> values) = 0;
  virtual absl::Status BroadcastNow(absl::Span<std::byte> bytes, int root) = 0;
  // `root` may be kEveryRank; out is empty on ranks that get nothing.
  virtual absl::Status GatherNow(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                                 int root) = 0;
  // Makes the calls of every rank that wait, now or later, end. Called once, from any thread.
  virtual void WakeAll(const absl::Status& reason) = 0;

  bool Receives(int root) const { return root == kEveryRank || root == rank_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  enum class Kind : uint8_t { kSum, kBroadcast, kGather };
  struct Call {
    HostGroup* group = nullptr;
    Kind kind = Kind::kSum;
    int root = 0;
    TensorView in = {};
    TensorView out = {};
  };

  absl::Status EnqueueGather(const char* name, const TensorView& in, const TensorView& out,
                             int root, Stream& stream);
  absl::Status Run(const Call& call);
  absl::Status Dispatch(const Call& call);

  const int rank_;
  const int size_;
  std::atomic<bool> failed_{false};
  std::atomic<int64_t> call_nanoseconds_{0};
  mutable std::mutex status_mutex_;
  absl::Status status_;  // set before failed_
};

}  // namespace tessera::kernels

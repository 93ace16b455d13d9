// A CUDA device's stream: a ring of records, handed to CUDA in order by a thread of its own.
//
// The thread is why a failure of host work skips what is enqueued behind it: a kernel is launched
// only after the host work before it succeeded. Enqueuing copies arguments into the ring and
// allocates nothing; it blocks only while the ring is full. What is recorded becomes a CUDA graph
// on that thread; where that fails, it runs launch by launch, and nothing is recorded any more.
// Thread rule: as kernels/device.h, one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_graphs.h"
#include "kernels/cuda/device/cuda_health.h"
#include "kernels/cuda/device/kernel_reports.h"
#include "kernels/cuda/launch/linear_shapes.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"
#include "kernels/event_stream.h"
#include "kernels/graph_stream.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaStream final : public Stream, public GraphStream, public EventStream {
 public:
  // A stream of the device with this index; `health` is its, and must outlive the stream.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(int device_index, CudaHealth* health);
  // Runs what is enqueued, then ends.
  ~CudaStream() override;

  // Also returns why the device is lost, and then does so for ever.
  absl::Status Synchronize() override;
  absl::Status EnqueueHostWork(HostWork work, const void* arguments, int64_t size_bytes) override;
  absl::Status CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) override;
  absl::Status CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) override;

  GraphStream* repeating() override { return this; }
  bool Replay(const Key& key) override;
  void BeginRecording(const Key& key) override;
  void EndRecording(bool whole) override;
  Kept kept() const override { return graphs_.kept(); }

  EventStream* marking() override { return this; }
  void Mark(int index) override;
  absl::Status WaitMark(int index) override;
  bool Passed(int index) override;

  // Enqueues launch(params, stream). `what` stands for it in errors and is not copied.
  template <typename Params>
  void Enqueue(const char* what, cudaError_t (*launch)(const Params&, cudaStream_t),
               const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxArgumentBytes);
    Record* const next = NextRecord();
    if (next == nullptr) return;  // Synchronize says why
    Record& record = *next;
    record.run = [](const Record& r, CudaStream& stream) {
      const auto call = reinterpret_cast<cudaError_t (*)(const Params&, cudaStream_t)>(r.call);
      const Params& arguments = *std::launder(reinterpret_cast<const Params*>(r.arguments.data()));
      return stream.health_->Check(call(arguments, stream.stream_), r.what, stream.stream_);
    };
    record.behind_failure = false;
    record.call = reinterpret_cast<void (*)()>(launch);
    record.what = what;
    std::memcpy(record.arguments.data(), &params, sizeof params);
    Submit();
  }

  // Enqueues work that gives CUDA's stream what it likes, on the thread that hands records on, and
  // whose bound is its own. A failure is as one of host work; nothing is waited for before it.
  template <typename Params>
  void EnqueueStreamWork(absl::Status (*work)(const Params&, cudaStream_t), const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= kMaxArgumentBytes);
    Record* const next = NextRecord();
    if (next == nullptr) return;  // Synchronize says why
    next->run = [](const Record& r, CudaStream& stream) {
      const auto call = reinterpret_cast<absl::Status (*)(const Params&, cudaStream_t)>(r.call);
      stream.in_host_work_ = true;
      absl::Status status =
          call(*std::launder(reinterpret_cast<const Params*>(r.arguments.data())), stream.stream_);
      stream.in_host_work_ = false;
      return status;
    };
    next->behind_failure = false;
    next->call = reinterpret_cast<void (*)()>(work);
    std::memcpy(next->arguments.data(), &params, sizeof params);
    Submit();
  }

  // From now on what these kernels report is the stream's failure, too: it is asked where the host
  // has waited for the stream, and before host work. What nobody else holds any more is forgotten.
  void Watch(const std::shared_ptr<const KernelReports>& reports);

  const void* owner() const override { return health_; }
  // Device memory: kMaxSplitTiles zeros, for products that split their depth.
  int32_t* arrivals() const { return arrivals_; }
  // Device memory: not 0: a launch that meets other devices failed (MappedSumParams).
  int32_t* meetings_failed() const { return arrivals_ + kMaxSplitTiles; }

 private:
  static constexpr int64_t kMaxArgumentBytes = 512;
  static_assert(kMaxHostArgumentBytes <= kMaxArgumentBytes);
  static constexpr uint32_t kRingRecords = 256;  // a power of two, so that counters may wrap

  struct Record {
    absl::Status (*run)(const Record& record, CudaStream& stream) = nullptr;  // null: the last one
    bool behind_failure = false;                                              // runs also there
    void (*call)() = nullptr;
    const char* what = "";
    alignas(16) std::array<std::byte, kMaxArgumentBytes> arguments;
  };

  CudaStream(int device_index, CudaHealth* health, cudaStream_t stream)
      : device_index_(device_index),
        health_(health),
        stream_(stream),
        ring_(new Record[kRingRecords]) {}
  // A point of the stream. The event and the failure are the runner's until the record is handed
  // on.
  struct MarkedPoint {
    cudaEvent_t event = nullptr;
    uint32_t end = 0;      // counts records, up to that which marks
    absl::Status failure;  // of what was before
  };
  // What the runner does about a graph.
  struct GraphCall {
    CudaGraphs::Graph* graph;
    bool whole;
  };
  void EnqueueGraph(absl::Status (*run)(const Record& record, CudaStream& stream),
                    const GraphCall& call, bool behind_failure = false);
  void Run(const Record& record);
  absl::Status EndCapture(CudaGraphs::Graph& graph, bool whole);
  absl::Status Copy(void* to, const void* from, int64_t size_bytes, cudaMemcpyKind kind);
  Record* NextRecord();  // waits for room; null where the device is lost meanwhile
  void Submit();
  absl::Status Reported() const;
  // Tells those who report how long the host has waited.
  void TellWaiting(double seconds) const;
  // Until so many records are handed on. An error: the device is lost, and they may not be.
  absl::Status WaitHandedOn(uint32_t target);
  void Loop();

  const int device_index_;
  CudaHealth* const health_;
  const cudaStream_t stream_;
  int32_t* arrivals_ = nullptr;
  const std::unique_ptr<Record[]> ring_;
  alignas(64) std::atomic<uint32_t> submitted_{0};
  alignas(64) std::atomic<uint32_t> handed_on_{0};  // to CUDA, or skipped
  std::atomic<uint32_t> sleepers_{0};               // on handed_on_
  std::atomic<bool> in_host_work_{false};           // whose bound is its own
  // The runner's while records are in the ring, the caller's once all are handed on.
  absl::Status failure_;
  std::array<MarkedPoint, kMarks> marks_;
  mutable std::mutex reports_mutex_;
  std::vector<std::shared_ptr<const KernelReports>> reports_;  // each once
  CudaGraphs graphs_;                       // the caller's, but for a graph's content
  CudaGraphs::Graph* recording_ = nullptr;  // the caller's: that which is being recorded
  bool captures_ = false;                   // the runner's
  absl::Status capture_failure_;            // the runner's
  std::vector<Record> captured_;            // the runner's: to run them, should the graph fail
  std::thread runner_;
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

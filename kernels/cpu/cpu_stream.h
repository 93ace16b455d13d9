// A CPU device's stream: a ring of op records, run in order by a thread of its own.
//
// That thread is member 0 of the device's pool (pinned to its first core). Enqueuing copies the
// op's arguments into the ring and allocates nothing; it blocks only while the ring is full. Ops
// cannot fail once enqueued; host work can. Thread rule: as kernels/device.h, one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

namespace tessera::kernels {

class CpuStream final : public Stream {
 public:
  // `pool` must outlive the stream.
  static absl::StatusOr<std::unique_ptr<CpuStream>> Create(ThreadPool* pool);
  // Runs what is enqueued, then ends.
  ~CpuStream() override;

  absl::Status Synchronize() override;
  absl::Status CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) override;
  absl::Status CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) override;
  absl::Status EnqueueHostWork(HostWork work, const void* arguments, int64_t size_bytes) override;

  template <typename Args>
  void Enqueue(Kernel<Args> kernel, const Args& args) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kMaxArgumentBytes);
    Record& record = NextRecord();
    record.run = [](const Record& r, CpuStream& stream) {
      const auto kernel = reinterpret_cast<Kernel<Args>>(r.kernel);
      kernel(*std::launder(reinterpret_cast<const Args*>(r.arguments.data())), *stream.pool_);
    };
    record.kernel = reinterpret_cast<void (*)()>(kernel);
    std::memcpy(record.arguments.data(), &args, sizeof(Args));
    Submit();
  }

  const void* owner() const override { return pool_; }

 private:
  static constexpr int64_t kMaxArgumentBytes = sizeof(SampleArgs);
  static_assert(kMaxHostArgumentBytes <= kMaxArgumentBytes);
  static constexpr uint32_t kRingRecords = 256;  // a power of two, so that counters may wrap

  struct Record {
    void (*run)(const Record& record, CpuStream& stream) = nullptr;
    void (*kernel)() = nullptr;
    alignas(16) std::array<std::byte, kMaxArgumentBytes> arguments;
  };

  explicit CpuStream(ThreadPool* pool) : pool_(pool), ring_(new Record[kRingRecords]) {}
  Record& NextRecord();  // waits for room
  void Submit();
  void WaitCompleted(uint32_t target);
  void Loop();

  ThreadPool* const pool_;
  const std::unique_ptr<Record[]> ring_;
  alignas(64) std::atomic<uint32_t> submitted_{0};
  std::atomic<bool> runner_sleeps_{false};
  alignas(64) std::atomic<uint32_t> completed_{0};
  std::atomic<uint32_t> awaited_{0};  // what the sleeping caller waits to see completed
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  // The runner's while work is enqueued, the caller's once everything is completed.
  absl::Status failure_;
  bool failed_ = false;
  std::thread runner_;
};

}  // namespace tessera::kernels

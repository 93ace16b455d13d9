#include "kernels/cpu/cpu_stream.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "kernels/cpu/futex.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

struct CopyArgs {
  std::byte* destination;
  const std::byte* source;
  int64_t size_bytes;
};

void Copy(const CopyArgs& args, ThreadPool& pool) {
  constexpr int64_t kPieceBytes = 4 << 20;
  const int64_t pieces = (args.size_bytes + kPieceBytes - 1) / kPieceBytes;
  pool.ParallelFor(pieces, [&](int64_t piece, int) {
    const int64_t begin = piece * kPieceBytes;
    std::memcpy(args.destination + begin, args.source + begin,
                std::min(kPieceBytes, args.size_bytes - begin));
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<CpuStream>> CpuStream::Create(ThreadPool* pool) {
  std::unique_ptr<CpuStream> stream(new CpuStream(pool));
  try {
    stream->runner_ = std::thread([s = stream.get()] { s->Loop(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        StrCat("CPU stream: cannot start its thread: ", error.what()));
  }
  if (absl::Status status = pool->PinCaller(stream->runner_); !status.ok()) return status;
  return stream;
}

CpuStream::~CpuStream() {
  stop_.store(true);
  FutexWake(submitted_, 1);
  if (runner_.joinable()) runner_.join();
}

absl::Status CpuStream::Synchronize() {
  WaitCompleted(submitted_.load(std::memory_order_relaxed));
  if (!failed_) return absl::OkStatus();
  failed_ = false;
  return std::exchange(failure_, absl::OkStatus());
}

absl::Status CpuStream::EnqueueHostWork(HostWork work, const void* arguments, int64_t size_bytes) {
  if (size_bytes < 0 || size_bytes > kMaxHostArgumentBytes) {
    return absl::InvalidArgumentError(StrCat(
        "host work with ", size_bytes, " bytes of arguments; at most ", kMaxHostArgumentBytes));
  }
  Record& record = NextRecord();
  record.run = [](const Record& r, CpuStream& stream) {
    stream.failure_ = reinterpret_cast<HostWork>(r.kernel)(r.arguments.data());
    stream.failed_ = !stream.failure_.ok();
  };
  record.kernel = reinterpret_cast<void (*)()>(work);
  std::memcpy(record.arguments.data(), arguments, static_cast<size_t>(size_bytes));
  Submit();
  return absl::OkStatus();
}

absl::Status CpuStream::CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) {
  const bool fits = size_bytes >= 0 && (size_bytes == 0 || (device_dst && host_src));
  if (!fits) {
    return absl::InvalidArgumentError(
        StrCat("Copy: ", size_bytes, " bytes; needs two addresses and a size of 0 or more"));
  }
  if (size_bytes == 0) return absl::OkStatus();
  Enqueue<CopyArgs>(&Copy, {static_cast<std::byte*>(device_dst),
                            static_cast<const std::byte*>(host_src), size_bytes});
  return absl::OkStatus();
}

absl::Status CpuStream::CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) {
  return CopyToDevice(host_dst, device_src, size_bytes);
}

CpuStream::Record& CpuStream::NextRecord() {
  const uint32_t index = submitted_.load(std::memory_order_relaxed);
  if (index - completed_.load(std::memory_order_acquire) >= kRingRecords) {
    WaitCompleted(index - kRingRecords / 2);  // half the ring, so that we do not sleep for every op
  }
  return ring_[index % kRingRecords];
}

void CpuStream::Submit() {
  submitted_.fetch_add(1);  // sequentially consistent with runner_sleeps_, see Loop
  if (runner_sleeps_.load()) FutexWake(submitted_, 1);
}

void CpuStream::WaitCompleted(uint32_t target) {
  const auto done = [&] {
    return static_cast<int32_t>(completed_.load(std::memory_order_acquire) - target) >= 0;
  };
  if (SpinUntil(done, pool_->spin_limit())) return;
  awaited_.store(target);
  caller_sleeps_.store(true);
  while (!done()) {
    const uint32_t completed = completed_.load();
    if (completed != target && !done()) FutexWait(completed_, completed);
  }
  caller_sleeps_.store(false);
}

void CpuStream::Loop() {
  uint32_t next = 0;
  while (true) {
    const auto ready = [&] { return submitted_.load(std::memory_order_acquire) != next; };
    if (!SpinUntil(ready, pool_->spin_limit())) {
      runner_sleeps_.store(true);
      while (submitted_.load() == next && !stop_.load()) FutexWait(submitted_, next);
      runner_sleeps_.store(false);
      if (!ready()) return;
    }
    const Record& record = ring_[next % kRingRecords];
    if (!failed_) record.run(record, *this);
    ++next;
    completed_.store(next);
    if (caller_sleeps_.load() && awaited_.load() == next) FutexWake(completed_, 1);
  }
}

}  // namespace tessera::kernels

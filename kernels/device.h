// A device (a GPU, or a CPU share: named cores and bytes of memory), its streams and its memory.
//
// Thread rule: a Device may be used from any thread; a Stream from one thread at a time. Work
// enqueued on a stream runs in order, asynchronously to the caller; results are visible to the host
// after Synchronize. Ownership: Buffer owns device memory and must not outlive its Device;
// HostBuffer may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace tessera::kernels {

class Device;
class GroupMaker;
class EventStream;
class Ops;
class GraphStream;

inline constexpr int64_t kMaxHostArgumentBytes = 256;

// Ordered queue of device work, and of host work between it.
//
// A failure is sticky: what is enqueued behind work that failed is skipped, until Synchronize
// returns the failure and clears it.
class Stream {
 public:
  // Host work that a stream runs; may wait, in bounded time. Its result is the stream's.
  using HostWork = absl::Status (*)(const void* arguments);

  virtual ~Stream() = default;
  // Blocks until everything enqueued so far is done; returns the first failure since the last call.
  virtual absl::Status Synchronize() = 0;
  // Enqueues work(arguments) on a thread of the stream: it starts when what is enqueued before is
  // done and visible to the host, and what is enqueued behind it waits for it. The arguments, at
  // most kMaxHostArgumentBytes of a trivially copyable type, are copied. EnqueueHost below is
  // typed.
  virtual absl::Status EnqueueHostWork(HostWork work, const void* arguments,
                                       int64_t size_bytes) = 0;
  // Enqueues a copy. Host memory must stay valid until the copy ran. Sizes in bytes.
  virtual absl::Status CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) = 0;
  virtual absl::Status CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) = 0;

  // What the stream can do beside this; null: it cannot. See their headers.
  virtual GraphStream* repeating() { return nullptr; }
  virtual EventStream* marking() { return nullptr; }
  // Identifies the device to its own ops, which take no stream of another owner.
  virtual const void* owner() const { return nullptr; }
};

// Enqueues work(arguments) on the stream, see Stream::EnqueueHostWork.
template <typename Args>
absl::Status EnqueueHost(Stream& stream, absl::Status (*work)(const Args&), const Args& arguments) {
  struct Call {
    absl::Status (*work)(const Args&);
    Args arguments;
  };
  static_assert(std::is_trivially_copyable_v<Call> && sizeof(Call) <= kMaxHostArgumentBytes);
  static_assert(alignof(Call) <= 16);
  const Call call = {work, arguments};
  const auto run = [](const void* bytes) {
    const Call& enqueued = *static_cast<const Call*>(bytes);
    return enqueued.work(enqueued.arguments);
  };
  return stream.EnqueueHostWork(run, &call, sizeof call);
}

// Move-only owner of device memory, 64-byte aligned at least.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, std::byte* data, int64_t size_bytes)
      : device_(device), data_(data), size_bytes_(size_bytes) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

// Move-only owner of host memory from Device::AllocateHost, 64-byte aligned.
class HostBuffer {
 public:
  using Free = void (*)(std::byte* data);

  HostBuffer() = default;
  // `free` gives `data` back.
  HostBuffer(std::byte* data, int64_t size_bytes, Free free)
      : data_(data), size_bytes_(size_bytes), free_(free) {}
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_bytes_ = 0;
  Free free_ = nullptr;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string Describe()
      const = 0;  // for logs and `tessera status`: kind, cores, kernel path
  virtual int64_t memory_bytes() const = 0;  // what this device may use in all
  virtual int host_threads() const = 0;      // for work of the host on its behalf, while it is idle
  // ResourceExhausted, naming asked and available bytes, when the memory is not there.
  virtual absl::StatusOr<Buffer> Allocate(int64_t size_bytes) = 0;
  // Host memory that streams copy from and to without a detour: pinned where the device has memory
  // of its own. Not counted in memory_bytes. ResourceExhausted where the system gives no more.
  virtual absl::StatusOr<HostBuffer> AllocateHost(int64_t size_bytes);
  // Whether the host may read and write what Allocate gave, once the stream is done with it. Where
  // it may not, only copies of a stream reach that memory.
  virtual bool host_reads_memory() const { return true; }
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream() = 0;
  virtual Ops& ops() = 0;
  // Brings values to other devices without the host; null: this device cannot.
  virtual GroupMaker* group_maker() { return nullptr; }
  // Ok, or why the device is lost to this process for ever: it is to end. Cheap; from any thread.
  virtual absl::Status Lost() const { return absl::OkStatus(); }

 protected:
  friend class Buffer;
  virtual void Free(std::byte* data, int64_t size_bytes) = 0;
};

}  // namespace tessera::kernels

// A device whose memory the host cannot read: its addresses are those of host memory moved by
// kFarBytes, where nothing is mapped, and only copies of its streams know the way. Who reads what
// was to be copied crashes.
//
// Thread rule: as the device itself. It has no ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/device.h"

namespace tessera {

inline constexpr uint64_t kFarBytes = uint64_t{1} << 60;

// The device's address of host memory, and back. Null stays null.
std::byte* ToFar(void* near);
std::byte* ToNear(void* far);

// Borrows the stream that does the work.
class FarStream : public kernels::Stream {
 public:
  explicit FarStream(kernels::Stream* stream) : stream_(stream) {}
  absl::Status Synchronize() override { return stream_->Synchronize(); }
  absl::Status EnqueueHostWork(HostWork work, const void* arguments, int64_t size_bytes) override {
    return stream_->EnqueueHostWork(work, arguments, size_bytes);
  }
  absl::Status CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) override;
  absl::Status CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) override;

 private:
  kernels::Stream* const stream_;
};

// Over the memory and streams of a CPU device, which it owns.
std::unique_ptr<kernels::Device> MakeFar(std::unique_ptr<kernels::Device> device);

}  // namespace tessera

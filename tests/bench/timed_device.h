// A CPU device that says how long each op took: for profiles of whole steps.
//
// While it is timing, its streams note the time before and after every op, as they come to it:
// nobody waits. Thread rule: as the ops themselves; one stream at a time while timing. Ownership:
// borrows the device, whose streams must be CpuStreams.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "kernels/device.h"

namespace tessera::bench {

class TimedDevice : public kernels::Device {
 public:
  explicit TimedDevice(kernels::Device* device);
  ~TimedDevice() override;

  void set_timing(bool timing);
  // Seconds by op since the last call; what was enqueued must have been waited for.
  std::map<std::string, double> Take();

  std::string Describe() const override { return device_->Describe(); }
  int64_t memory_bytes() const override { return device_->memory_bytes(); }
  int host_threads() const override { return device_->host_threads(); }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t size_bytes) override {
    return device_->Allocate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Stream>> CreateStream() override {
    return device_->CreateStream();
  }
  kernels::Ops& ops() override;

 private:
  class TimedOps;
  void Free(std::byte*, int64_t) override {}  // buffers are the device's own

  kernels::Device* const device_;
  std::unique_ptr<TimedOps> ops_;
};

}  // namespace tessera::bench

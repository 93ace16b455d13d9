#include "tests/fakes/far_device.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace tessera {
namespace {

std::byte* Moved(const void* memory, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return address == 0 ? nullptr : reinterpret_cast<std::byte*>(address + bytes);
}

class OwningFarStream final : public FarStream {
 public:
  explicit OwningFarStream(std::unique_ptr<kernels::Stream> stream)
      : FarStream(stream.get()), owned_(std::move(stream)) {}

 private:
  const std::unique_ptr<kernels::Stream> owned_;
};

class FarDevice final : public kernels::Device {
 public:
  explicit FarDevice(std::unique_ptr<kernels::Device> device) : device_(std::move(device)) {}

  std::string Describe() const override { return device_->Describe(); }
  int64_t memory_bytes() const override { return device_->memory_bytes(); }
  int host_threads() const override { return device_->host_threads(); }
  bool host_reads_memory() const override { return false; }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t size_bytes) override {
    auto near = device_->Allocate(size_bytes);
    if (!near.ok()) return near.status();
    const std::lock_guard<std::mutex> lock(mutex_);
    std::byte* const far = ToFar(near->data());
    buffers_[far] = *std::move(near);
    return kernels::Buffer(this, far, size_bytes);
  }
  absl::StatusOr<std::unique_ptr<kernels::Stream>> CreateStream() override {
    auto stream = device_->CreateStream();
    if (!stream.ok()) return stream.status();
    return std::make_unique<OwningFarStream>(*std::move(stream));
  }
  kernels::Ops& ops() override { return device_->ops(); }

 private:
  void Free(std::byte* data, int64_t) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    buffers_.erase(data);
  }

  const std::unique_ptr<kernels::Device> device_;
  std::mutex mutex_;
  std::map<std::byte*, kernels::Buffer> buffers_;
};

}  // namespace

std::byte* ToFar(void* near) { return Moved(near, kFarBytes); }
std::byte* ToNear(void* far) { return Moved(far, -kFarBytes); }

absl::Status FarStream::CopyToDevice(void* device_dst, const void* host_src, int64_t size_bytes) {
  return stream_->CopyToDevice(ToNear(device_dst), host_src, size_bytes);
}

absl::Status FarStream::CopyToHost(void* host_dst, const void* device_src, int64_t size_bytes) {
  return stream_->CopyToHost(host_dst, Moved(device_src, -kFarBytes), size_bytes);
}

std::unique_ptr<kernels::Device> MakeFar(std::unique_ptr<kernels::Device> device) {
  return std::make_unique<FarDevice>(std::move(device));
}

}  // namespace tessera

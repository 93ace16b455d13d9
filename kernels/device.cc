#include "kernels/device.h"

#include <algorithm>
#include <cstdlib>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kHostAlignment = 64;

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    if (device_ != nullptr) device_->Free(data_, size_bytes_);
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

Buffer::~Buffer() {
  if (device_ != nullptr) device_->Free(data_, size_bytes_);
}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this != &other) {
    if (free_ != nullptr) free_(data_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
    free_ = std::exchange(other.free_, nullptr);
  }
  return *this;
}

HostBuffer::~HostBuffer() {
  if (free_ != nullptr) free_(data_);
}

absl::StatusOr<HostBuffer> Device::AllocateHost(int64_t size_bytes) {
  if (size_bytes < 0) {
    return absl::InvalidArgumentError(StrCat("host memory: asked for ", size_bytes, " bytes"));
  }
  const int64_t whole =
      (std::max<int64_t>(size_bytes, 1) + kHostAlignment - 1) / kHostAlignment * kHostAlignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kHostAlignment, whole));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        StrCat("host memory: the system does not give ", size_bytes, " bytes"));
  }
  return HostBuffer(data, size_bytes, [](std::byte* memory) { std::free(memory); });
}

}  // namespace tessera::kernels

#include "kernels/device.h"

namespace tessera::kernels {

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

}  // namespace tessera::kernels

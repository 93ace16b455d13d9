#include "kernels/cuda/device/weight_ring.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/device/pinned_memory.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr const char* kWhat = "loading weights";

}  // namespace

WeightRings::~WeightRings() {
  for (const auto& ring : idle_) {
    for (const Slot& slot : ring->slots) {
      if (slot.stream != nullptr) cudaStreamDestroy(slot.stream);
    }
  }
}

absl::StatusOr<std::unique_ptr<WeightRings::Ring>> WeightRings::TakeRing() {
  absl::Status status = health_->Check(cudaSetDevice(device_index_), "choosing the device");
  if (!status.ok()) return status;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.empty()) return std::make_unique<Ring>();
  std::unique_ptr<Ring> ring = std::move(idle_.back());
  idle_.pop_back();
  return ring;
}

absl::Status WeightRings::Reserve(Slot& slot, int64_t size_bytes) {
  if (slot.stream == nullptr) {
    const cudaError_t error = cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return health_->Check(error, kWhat);
  }
  if (slot.memory.size_bytes() >= size_bytes) return absl::OkStatus();
  slot.memory = HostBuffer();
  auto memory = PinMemory(size_bytes, *health_, kWhat);
  if (!memory.ok()) return memory.status();
  slot.memory = *std::move(memory);
  return absl::OkStatus();
}

absl::Status WeightRings::Copy(Ring& ring, std::byte* device, int64_t rows, int64_t row_bytes,
                               const Fill& fill) {
  const int64_t of_slot = std::max<int64_t>(1, kSlotBytes / row_bytes);
  size_t turn = 0;
  for (int64_t first = 0; first < rows; first += of_slot, ++turn) {
    Slot& slot = ring.slots[turn % ring.slots.size()];
    const int64_t count = std::min(of_slot, rows - first), bytes = count * row_bytes;
    absl::Status status = Reserve(slot, std::max(bytes, kSlotBytes));
    if (status.ok()) status = WaitIdle(slot.stream, *health_, kWhat);
    if (status.ok()) status = fill(first, count, slot.memory.data());
    if (status.ok()) {
      status = health_->Check(
          cudaMemcpyAsync(device + first * row_bytes, slot.memory.data(),
                          static_cast<size_t>(bytes), cudaMemcpyHostToDevice, slot.stream),
          kWhat, slot.stream);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status WeightRings::Upload(std::byte* device, int64_t rows, int64_t row_bytes,
                                 const Fill& fill) {
  auto ring = TakeRing();
  if (!ring.ok()) return ring.status();
  absl::Status status = Copy(**ring, device, rows, row_bytes, fill);
  // Also after a failure: nothing is copied from the slots when they are used again, or freed.
  for (const Slot& slot : (*ring)->slots) {
    if (slot.stream != nullptr) status.Update(WaitIdle(slot.stream, *health_, kWhat));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(*std::move(ring));
  return status;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

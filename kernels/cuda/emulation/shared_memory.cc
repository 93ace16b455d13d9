#include "kernels/cuda/emulation/shared_memory.h"

#include "kernels/cuda/emulation/poison.h"
#include "kernels/cuda/launch/launch_shape.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

// As swizzled tiles want it.
constexpr int64_t kBaseAlignmentBytes = 1024;
constexpr int64_t kMemoryBytes = 2 * kMaxSharedBytes;  // guards and gaps included

// Unlike those of the first allocations of global memory.
uint16_t Guard(std::size_t part) { return GuardPattern(31 + static_cast<int64_t>(part)); }

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

SharedMemory::SharedMemory() : memory_(kMemoryBytes + kBaseAlignmentBytes) {
  const auto address = reinterpret_cast<int64_t>(memory_.data());
  base_ = memory_.data() + (RoundUp(address, kBaseAlignmentBytes) - address);
  end_ = base_;
}

void SharedMemory::Begin(int64_t dynamic_bytes, int64_t most_bytes) {
  parts_.clear();
  end_ = base_;
  used_bytes_ = 0;
  most_bytes_ = most_bytes;
  Add(nullptr, dynamic_bytes, kBaseAlignmentBytes);
}

std::byte* SharedMemory::Add(const void* tag, int64_t size_bytes, int64_t alignment_bytes) {
  const int64_t offset = RoundUp(end_ - base_, alignment_bytes);
  const int64_t end = RoundUp(offset + size_bytes + kGuardBytes, 16);
  if (used_bytes_ + size_bytes > most_bytes_ || end > kMemoryBytes) return nullptr;
  used_bytes_ += size_bytes;
  Fill(base_ + offset, size_bytes, kPoison);
  Fill(base_ + offset + size_bytes, end - offset - size_bytes, Guard(parts_.size()));
  end_ = base_ + end;
  parts_.push_back({tag, base_ + offset, size_bytes});
  return base_ + offset;
}

std::byte* SharedMemory::Static(const void* tag, int64_t size_bytes, int64_t alignment_bytes) {
  for (const Part& part : parts_) {
    if (part.tag == tag) return part.begin;
  }
  return Add(tag, size_bytes, alignment_bytes);
}

bool SharedMemory::Contains(const void* address, int64_t size_bytes) const {
  const auto* begin = static_cast<const std::byte*>(address);
  for (const Part& part : parts_) {
    if (begin >= part.begin && begin + size_bytes <= part.begin + part.size_bytes) return true;
  }
  return false;
}

std::string SharedMemory::CheckGuards() const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const int64_t written = FirstOther(part.begin + part.size_bytes, kGuardBytes, Guard(i));
    if (written < 0) continue;
    return StrCat("wrote byte ", part.size_bytes + written, " of ",
                  part.tag == nullptr ? "dynamic" : "static", " shared memory of ", part.size_bytes,
                  " bytes");
  }
  return "";
}

}  // namespace tessera::kernels::cuda::emulated

#include "kernels/cuda/emulation/device_memory.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/emulation/poison.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

constexpr int64_t kAlignmentBytes = 256;
static_assert(kGuardBytes == kAlignmentBytes);

}  // namespace

std::byte* DeviceMemory::Allocate(int64_t size_bytes) {
  const int64_t total = size_bytes + 2 * kGuardBytes + kAlignmentBytes;
  Allocation made = {count_++, std::make_unique<std::byte[]>(total), nullptr, size_bytes};
  const auto address = reinterpret_cast<int64_t>(made.memory.get());
  made.data = made.memory.get() + (kAlignmentBytes - address % kAlignmentBytes) + kGuardBytes;
  const uint16_t guard = GuardPattern(made.number);
  Fill(made.data - kGuardBytes, kGuardBytes, guard);
  Fill(made.data, size_bytes, kPoison);
  Fill(made.data + size_bytes, kGuardBytes, guard);
  live_bytes_ += size_bytes;
  live_.push_back(std::move(made));
  return live_.back().data;
}

bool DeviceMemory::Free(std::byte* data) {
  const auto found = std::find_if(live_.begin(), live_.end(),
                                  [&](const Allocation& made) { return made.data == data; });
  if (found == live_.end()) return false;
  Fill(found->data, found->size_bytes, kPoison);
  live_bytes_ -= found->size_bytes;
  freed_bytes_ += found->size_bytes;
  freed_.push_back(std::move(*found));
  live_.erase(found);
  while (freed_bytes_ - freed_.front().size_bytes >= kKeptBytes) {
    freed_bytes_ -= freed_.front().size_bytes;
    freed_.pop_front();
  }
  return true;
}

absl::Status DeviceMemory::Check(const Allocation& allocation, bool freed) {
  const uint16_t guard = GuardPattern(allocation.number);
  struct {
    int64_t begin, size_bytes;
    uint16_t pattern;
  } const parts[] = {{-kGuardBytes, kGuardBytes, guard},
                     {0, freed ? allocation.size_bytes : 0, kPoison},
                     {allocation.size_bytes, kGuardBytes, guard}};
  for (const auto& part : parts) {
    const std::byte* begin = allocation.data + part.begin;
    const int64_t written = FirstOther(begin, part.size_bytes, part.pattern);
    if (written < 0) continue;
    return absl::InternalError(StrCat(
        "CUDA emulator: byte ", part.begin + written, " of allocation ", allocation.number, ", of ",
        allocation.size_bytes, " bytes", freed ? " and freed" : "", ", was written"));
  }
  return absl::OkStatus();
}

absl::Status DeviceMemory::CheckGuards() const {
  absl::Status status;
  for (const Allocation& allocation : live_) status.Update(Check(allocation, false));
  for (const Allocation& allocation : freed_) status.Update(Check(allocation, true));
  return status;
}

}  // namespace tessera::kernels::cuda::emulated

// Global memory of the emulated GPU: poisoned when it is allocated and when it is freed, with
// guards before and behind each allocation that show writes outside of it.
//
// Thread rule: one host thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"

namespace tessera::kernels::cuda::emulated {

class DeviceMemory {
 public:
  // At a multiple of 256 bytes, as cudaMalloc has it.
  std::byte* Allocate(int64_t size_bytes);
  // False where `data` was not allocated, or was freed before. The memory becomes poison, so that
  // stale pointers show in results; it is kept until kKeptBytes of other memory were freed after
  // it.
  bool Free(std::byte* data);
  // Internal, naming the allocation by its number, where a guard or freed memory was written.
  absl::Status CheckGuards() const;

  // Bytes of all that is allocated and not freed.
  int64_t live_bytes() const { return live_bytes_; }
  // Allocations that were ever made.
  int64_t allocations() const { return count_; }

  static constexpr int64_t kKeptBytes = int64_t{4} << 20;

 private:
  struct Allocation {
    int64_t number;
    std::unique_ptr<std::byte[]> memory;
    std::byte* data;
    int64_t size_bytes;
  };
  static absl::Status Check(const Allocation& allocation, bool freed);

  int64_t count_ = 0;  // of all ever made
  std::deque<Allocation> live_;
  std::deque<Allocation> freed_;  // the oldest first
  int64_t live_bytes_ = 0, freed_bytes_ = 0;
};

}  // namespace tessera::kernels::cuda::emulated

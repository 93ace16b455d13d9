// The shared memory of one emulated block: the dynamic part of the launch, and static arrays where
// the kernel declares them. Poisoned at the start of each block, guarded behind each part.
//
// Thread rule: one host thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::kernels::cuda::emulated {

class SharedMemory {
 public:
  SharedMemory();

  // A new block: everything poison, no static arrays. It may have `most_bytes` in all, at most
  // kMaxSharedBytes.
  void Begin(int64_t dynamic_bytes, int64_t most_bytes);
  std::byte* dynamic() const { return base_; }
  // The block's array with this tag (the address of a static variable at its declaration); made at
  // the first call. Null where the block would have more than it may.
  std::byte* Static(const void* tag, int64_t size_bytes, int64_t alignment_bytes);
  bool Contains(const void* address, int64_t size_bytes) const;
  // Empty, or which part was written beyond its end.
  std::string CheckGuards() const;

 private:
  struct Part {
    const void* tag;  // null: the dynamic part
    std::byte* begin;
    int64_t size_bytes;
  };
  std::byte* Add(const void* tag, int64_t size_bytes, int64_t alignment_bytes);

  std::vector<std::byte> memory_;
  std::byte* base_;
  std::byte* end_;  // of the parts and their guards
  int64_t used_bytes_ = 0, most_bytes_ = 0;
  std::vector<Part> parts_;
};

}  // namespace tessera::kernels::cuda::emulated

// Memory that the ranks of a group share, mapped once for each of them, as their processes would:
// for who plays all ranks in one process.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <vector>

#include "kernels/links/shared_memory.h"

namespace tessera::tests {

// Zeros, at another address for each rank. Empty: the system gives none.
inline std::vector<std::shared_ptr<std::byte>> MapForRanks(int ranks, int64_t size_bytes) {
  const auto made = kernels::CreateSharedMemory(size_bytes);
  std::vector<std::shared_ptr<std::byte>> mappings;
  const auto size = static_cast<size_t>(size_bytes);
  for (int rank = 0; made.ok() && rank < ranks; ++rank) {
    void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, made->file.get(), 0);
    if (at == MAP_FAILED) return {};
    mappings.emplace_back(static_cast<std::byte*>(at),
                          [size](std::byte* data) { munmap(data, size); });
  }
  return mappings;
}

}  // namespace tessera::tests

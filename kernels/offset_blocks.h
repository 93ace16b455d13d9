// How the inputs of int4 weights with an offset share their scales: weight = scale * code + offset,
// both shared by a group of inputs.
//
// A block of inputs has a pair of f16 numbers. Where a block is one group (GGUF's Q4_1), these are
// the group's scale and offset. Where it has several (Q4_K: blocks of 256, groups of 32), a group
// has a pair of 8-bit integers that multiply them.
#pragma once

#include <cstdint>

namespace tessera::kernels {

struct OffsetBlocks {
  // Inputs of a block, a multiple of the group's; 0: weights have no offset.
  int64_t size = 0;
  // Inputs of the first block that a slice of columns has left out, whole groups and fewer than
  // `size`: so a slice may begin with any group.
  int64_t skipped = 0;

  // Written out for C++17, in which nvcc compiles kernels.
  friend constexpr bool operator==(const OffsetBlocks& a, const OffsetBlocks& b) {
    return a.size == b.size && a.skipped == b.skipped;
  }
};

}  // namespace tessera::kernels

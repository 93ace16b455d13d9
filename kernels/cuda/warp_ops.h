// Instructions that CUDA C++ has no function for: tensor-core products, matrix loads, asynchronous
// copies, powers of two, sums of pairs, named barriers. Kernels use inline PTX nowhere else. On a
// GPU each is the instruction (ptx_ops.h); under the emulator it has the same meaning in C++
// (emulation/warp_instructions.h). The PTX has been assembled for every architecture, and has run
// on 9.0: tests/kernels/cuda/warp_ops_test holds it against the emulator where there is a GPU.
//
// All 32 lanes of a warp call Mma... and LoadMatrices... together. T is Float16 or BFloat16; a
// register holds two of them, the lower index in the lower half. With g = lane / 4, t = lane % 4:
//
//   template <typename T> void Mma16x8x16(float (&c)[4], const uint32_t (&a)[4],
//                                         const uint32_t (&b)[2]);
//     C[16, 8] += A[16, 16] * B[16, 8], sums in f32. Capability 8.0; f16 on 7.5 as two of k 8.
//     a: 0 (g, 2t..), 1 (g + 8, 2t..), 2 (g, 2t + 8..), 3 (g + 8, 2t + 8..)    [row, k]
//     b: 0 (2t.., g), 1 (2t + 8.., g)                                          [k, column]
//     c: 0, 1 (g, 2t..), 2, 3 (g + 8, 2t..)                                    [row, column]
//   template <typename T> void Mma16x8x8(float (&c)[4], const uint32_t (&a)[2], uint32_t b);
//     The same with k of 8: a 0, 1 and b 0 of the above. f16: capability 7.5, bf16: 8.0.
//   void LoadMatrices(uint32_t (&r)[4], const void* row);
//   void LoadMatricesTransposed(uint32_t (&r)[4], const void* row);
//     Four 8 x 8 matrices of 16-bit elements from shared memory: lane 8m + i gives the address of
//     row i of matrix m, a multiple of 16 bytes. r[m] is (g, 2t..) of matrix m [row, column], or of
//     its transpose.
//   void CopyAsync16(void* shared, const void* global, bool valid);
//     16 bytes, zeros where not valid (then `global` must still be an address that may be read);
//     both multiples of 16. The lane sees them after a wait, other lanes after a barrier behind it.
//     Before capability 8.0 a plain copy.
//   void CommitCopies();                       closes a group of the lane's copies
//   template <int newest> void WaitCopies();   until only the `newest` last groups are outstanding
//   float Exp2(float x);
//     2 to the power of x, off by at most 2^-22 of it; 0 where that is below the normal numbers.
//   template <typename T> uint32_t RoundPair(float low, float high);
//     Both rounded to nearest even. Beyond float16 is infinity.
//   int ComputedHere(int value);
//     The value. What is computed from it in a loop is not computed before the loop, where it would
//     take registers.
//   template <typename T> uint32_t AddPairs(uint32_t a, uint32_t b);
//     The sums of the lower and of the upper halves, rounded to nearest even.
//   template <typename T> uint32_t MultiplyPairs(uint32_t a, uint32_t b);  T is BFloat16
//     The products of the lower and of the upper halves, rounded to nearest even.
//   uint32_t MaskAndOr(uint32_t value, uint32_t mask, uint32_t bits);
//     (value & mask) | bits. Of two constants compilers make two instructions.
//   void SyncNamedBarrier(int id, int threads);    ids 1 to 15; threads: a multiple of 32
//   void ArriveNamedBarrier(int id, int threads);  counts as an arrival, does not wait
#pragma once

#include "kernels/cuda/platform.h"

#ifdef TESSERA_CUDA_EMULATED
#include "kernels/cuda/emulation/warp_instructions.h"
#else
#include "kernels/cuda/ptx_ops.h"
#endif

// kernels/cuda/warp_ops.h under the emulator: see there for the meaning.
//
// Products of 16-bit elements are exact in f32; a product of matrices adds them to C in order of k,
// where a GPU has an order of its own.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/emulation/device_language.h"
#include "kernels/half_floats.h"

namespace tessera::kernels::cuda::emulated {

// `registers_a` and `_b` as in warp_ops.h; depth: k, 8 or 16.
struct MmaOperands {
  const uint32_t* a;
  const uint32_t* b;
  float* c;
  float (*to_float)(uint16_t bits);
  int depth;
};

// What lanes bring to, and do in, a product and a load: warp_instructions.cc.
void ExecuteMma(Block& block, const LaneArguments& lanes);

struct MatrixLoad {
  uint32_t* r;
  const void* row;
  bool transposed;
  Site site;
};
void ExecuteMatrixLoad(Block& block, const LaneArguments& lanes);

template <typename T>
float HalfToFloat(uint16_t bits) {
  return ToFloat(T{bits});
}

// Arithmetic in bf16 came with 8.0.
template <typename T>
void CheckArithmetic(const Site& site) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    Block::Current().CheckCapability(80, site, "arithmetic in bf16");
  }
}

template <typename T>
void Mma16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                Place place = Place::current()) {
  CheckArithmetic<T>({"Mma16x8x16", place});
  MmaOperands operands = {a, b, c, &HalfToFloat<T>, 16};
  Block::Current().MeetAligned({"Mma16x8x16", place}, &operands, &ExecuteMma);
}

template <typename T>
void Mma16x8x8(float (&c)[4], const uint32_t (&a)[2], uint32_t b, Place place = Place::current()) {
  CheckArithmetic<T>({"Mma16x8x8", place});
  MmaOperands operands = {a, &b, c, &HalfToFloat<T>, 8};
  Block::Current().MeetAligned({"Mma16x8x8", place}, &operands, &ExecuteMma);
}

inline void LoadMatrices(uint32_t (&r)[4], const void* row, Place place = Place::current()) {
  MatrixLoad load = {r, row, false, {"LoadMatrices", place}};
  Block::Current().MeetAligned(load.site, &load, &ExecuteMatrixLoad);
}

inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row,
                                   Place place = Place::current()) {
  MatrixLoad load = {r, row, true, {"LoadMatricesTransposed", place}};
  Block::Current().MeetAligned(load.site, &load, &ExecuteMatrixLoad);
}

inline void CopyAsync16(void* shared, const void* global, bool valid,
                        Place place = Place::current()) {
  Block::Current().CopyAsync(shared, global, 16, valid ? 16 : 0, {"CopyAsync16", place});
}

inline void CommitCopies() { Block::Current().CommitCopies(); }

template <int newest>
void WaitCopies() {
  Block::Current().WaitCopies(newest);
}

inline float Exp2(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126f ? 0 : power;
}

inline int ComputedHere(int value) { return value; }

template <typename T>
uint32_t RoundPair(float low, float high) {
  return RoundTo<T>(low).bits | static_cast<uint32_t>(RoundTo<T>(high).bits) << 16;
}

template <typename T>
float HalfOfPair(uint32_t pair, int i) {
  return HalfToFloat<T>(static_cast<uint16_t>(pair >> 16 * i));
}

template <typename T>
uint32_t AddPairs(uint32_t a, uint32_t b, Place place = Place::current()) {
  CheckArithmetic<T>({"AddPairs", place});
  return RoundPair<T>(HalfOfPair<T>(a, 0) + HalfOfPair<T>(b, 0),
                      HalfOfPair<T>(a, 1) + HalfOfPair<T>(b, 1));
}

template <typename T>
uint32_t MultiplyPairs(uint32_t a, uint32_t b, Place place = Place::current()) {
  static_assert(std::is_same_v<T, BFloat16>);
  CheckArithmetic<T>({"MultiplyPairs", place});
  return RoundPair<T>(HalfOfPair<T>(a, 0) * HalfOfPair<T>(b, 0),
                      HalfOfPair<T>(a, 1) * HalfOfPair<T>(b, 1));
}

inline uint32_t MaskAndOr(uint32_t value, uint32_t mask, uint32_t bits) {
  return (value & mask) | bits;
}

inline void SyncNamedBarrier(int id, int threads, Place place = Place::current()) {
  Block::Current().Synchronize(id, threads, {"SyncNamedBarrier", place});
}

inline void ArriveNamedBarrier(int id, int threads, Place place = Place::current()) {
  Block::Current().Arrive(id, threads, {"ArriveNamedBarrier", place});
}

}  // namespace tessera::kernels::cuda::emulated

// What CUDA C++ has beyond C++, for kernels that g++ compiles for the emulator: execution-space
// words, vector types, barriers, shuffles and votes, under CUDA's own names and with its meaning.
//
// What is undefined on a GPU is a fault here (lanes of a warp in different instructions, a
// __syncthreads that only some threads reach) or poison (a shuffle from a lane that takes no part).
// There is no atomicAdd of floats: it sums in an order that no one chooses.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/emulation/device_variables.h"
#include "kernels/cuda/emulation/poison.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/half_floats.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

// TESSERA_SHARED(float, sums, 32): an array of the block. TESSERA_DYNAMIC_SHARED(memory): the start
// of what LaunchShape::shared_bytes asks for, as unsigned char*.
#define TESSERA_SHARED(type, name, count) \
  static char name##_tag;                 \
  auto& name = ::tessera::kernels::cuda::emulated::SharedArray<type, (count)>(&name##_tag)
#define TESSERA_DYNAMIC_SHARED(name)                   \
  auto* const name = reinterpret_cast<unsigned char*>( \
      ::tessera::kernels::cuda::emulated::Block::Current().shared().dynamic())

namespace tessera::kernels::cuda::emulated {

using Place = std::source_location;

struct float2 {
  float x, y;
};
struct alignas(16) [[gnu::may_alias]] float4 {
  float x, y, z, w;
};
// Vectors are what loads and stores of other types go through.
struct alignas(8) [[gnu::may_alias]] uint2 {
  uint32_t x, y;
};
struct alignas(16) [[gnu::may_alias]] uint4 {
  uint32_t x, y, z, w;
};

template <typename T, int count>
T (&SharedArray(const void* tag, Place place = Place::current()))
[count] {
  Block& block = Block::Current();
  std::byte* memory =
      block.shared().Static(tag, sizeof(T[count]), std::max<int64_t>(alignof(T), 16));
  if (memory == nullptr) block.Fail({"TESSERA_SHARED", place}, "no shared memory is left");
  return *reinterpret_cast<T(*)[count]>(memory);
}

inline void __syncthreads(Place place = Place::current()) {
  Block::Current().Synchronize(0, 0, {"__syncthreads", place});
}

inline void __syncwarp(uint32_t mask = kAllLanes, Place place = Place::current()) {
  Block::Current().Meet(mask, {"__syncwarp", place}, nullptr, [](Block&, const LaneArguments&) {});
}

template <typename T>
T Shuffle(uint32_t mask, T value, int from, const Site& site) {
  struct Exchange {
    T in, out;
    int from;
  } exchange = {value, value, from};
  Block::Current().Meet(mask, site, &exchange, [](Block&, const LaneArguments& lanes) {
    for (void* lane : lanes) {
      if (lane == nullptr) continue;
      auto& to = *static_cast<Exchange*>(lane);
      const void* source = lanes[to.from];
      to.out = source == nullptr ? PoisonValue<T>() : static_cast<const Exchange*>(source)->in;
    }
  });
  return exchange.out;
}

template <typename T>
T __shfl_sync(uint32_t mask, T value, int lane, int width = kWarpThreads,
              Place place = Place::current()) {
  const int own = Block::Current().lane();
  return Shuffle(mask, value, own / width * width + lane % width, {"__shfl_sync", place});
}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = kWarpThreads,
                  Place place = Place::current()) {
  const int own = Block::Current().lane(), from = own ^ lane_mask;
  const int end = (own / width + 1) * width;
  return Shuffle(mask, value, from < end ? from : own, {"__shfl_xor_sync", place});
}

template <typename T>
T __shfl_up_sync(uint32_t mask, T value, int delta, int width = kWarpThreads,
                 Place place = Place::current()) {
  const int own = Block::Current().lane(), from = own - delta;
  const int begin = own / width * width;
  return Shuffle(mask, value, from >= begin ? from : own, {"__shfl_up_sync", place});
}

template <typename T>
T __shfl_down_sync(uint32_t mask, T value, int delta, int width = kWarpThreads,
                   Place place = Place::current()) {
  const int own = Block::Current().lane(), from = own + delta;
  const int end = (own / width + 1) * width;
  return Shuffle(mask, value, from < end ? from : own, {"__shfl_down_sync", place});
}

inline uint32_t Vote(uint32_t mask, bool value, const Site& site) {
  struct Ballot {
    bool in;
    uint32_t out;
  } ballot = {value, 0};
  Block::Current().Meet(mask, site, &ballot, [](Block&, const LaneArguments& lanes) {
    uint32_t bits = 0;
    for (int i = 0; i < kWarpThreads; ++i) {
      if (lanes[i] != nullptr && static_cast<Ballot*>(lanes[i])->in) bits |= 1u << i;
    }
    for (void* lane : lanes) {
      if (lane != nullptr) static_cast<Ballot*>(lane)->out = bits;
    }
  });
  return ballot.out;
}

inline uint32_t __ballot_sync(uint32_t mask, bool value, Place place = Place::current()) {
  return Vote(mask, value, {"__ballot_sync", place});
}

inline bool __any_sync(uint32_t mask, bool value, Place place = Place::current()) {
  return Vote(mask, value, {"__any_sync", place}) != 0;
}

inline bool __all_sync(uint32_t mask, bool value, Place place = Place::current()) {
  return Vote(mask, !value, {"__all_sync", place}) == 0;
}

inline int __popc(uint32_t bits) { return std::popcount(bits); }
inline int __clz(uint32_t bits) { return std::countl_zero(bits); }
// One more than the lowest bit's place; 0 if there is none.
inline int __ffs(uint32_t bits) { return bits == 0 ? 0 : std::countr_zero(bits) + 1; }

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Blocks run one behind the other, and so do threads between their waits.
inline int32_t atomicAdd(int32_t* at, int32_t value) { return std::exchange(*at, *at + value); }
inline void __threadfence() {}

// Loads past the first-level cache.
template <typename T>
T __ldcg(const T* from) {
  return *from;
}

// Bytes of `low` (0 to 3) and `high` (4 to 7), chosen by the lowest 3 bits of each hex digit.
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t digits) {
  const uint64_t both = low | uint64_t{high} << 32;
  uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = digits >> 4 * i & 7;
    bytes |= static_cast<uint32_t>(both >> 8 * byte & 0xff) << 8 * i;
  }
  return bytes;
}

template <typename T>
float AsFloat(T value) {
  return ToFloat(value);
}

// The value, or float16's largest number where it is beyond that. NaN stays NaN.
inline float WithinFloat16(float value) {
  constexpr float kLargest = 65504.0f;
  return value > kLargest ? kLargest : value < -kLargest ? -kLargest : value;
}

// The value rounded to nearest even; beyond float16 its largest number. NaN stays NaN.
template <typename T>
T RoundTo(float value) {
  return FromFloat<T>(std::is_same_v<T, Float16> ? WithinFloat16(value) : value);
}

using std::max;
using std::min;

// What stands for a launch in reports.
inline std::string NameOf(const Place& place) {
  const std::string_view path = place.file_name();
  return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(place.line());
}

// A kernel takes one trivially copyable struct. Returns what the launch on a GPU would return.
template <typename Params>
cudaError_t Launch(void (*kernel)(Params), const LaunchShape& shape, cudaStream_t stream,
                   const Params& params, Place place = Place::current()) {
  return stream->Launch(NameOf(place), shape, [kernel, params] { kernel(params); });
}

// Here a launch begins where the one before it has ended; a thread that never waits is a fault.
template <typename Params>
cudaError_t LaunchEarly(void (*kernel)(Params), const LaunchShape& shape, cudaStream_t stream,
                        const Params& params, Place place = Place::current()) {
  const auto thread = [kernel, params, place] {
    kernel(params);
    Block::Current().CheckWaited({"LaunchEarly", place}, "ends");
  };
  return stream->Launch(NameOf(place), shape, thread);
}

inline void WaitForEarlierLaunches() { Block::Current().WaitForEarlierLaunches(); }
// Before the wait the next launch could overlap with more than this one.
inline void LetNextLaunchBegin(Place place = Place::current()) {
  Block::Current().CheckWaited({"LetNextLaunchBegin", place}, "lets the next launch begin");
}

}  // namespace tessera::kernels::cuda::emulated

// What the emulator gives a kernel: indices, shared memory, barriers, and warps of which not all
// lanes take part. Instructions of whole warps: tests/kernels/cuda/warp_ops_test.cc.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/warp_ops.h"
#include "tests/kernels/cuda/emulation/every_schedule.h"

namespace tessera::kernels::cuda::emulated {
namespace {

using Faults = std::vector<std::string>;

struct Out {
  float* out;
};

// Runs a kernel with `size` outputs and compares them.
Faults Compare(void (*kernel)(Out), const LaunchShape& shape, const std::vector<float>& expected) {
  return FaultsUnderSchedules(
      [&](EmulatedStream& stream, DeviceMemory& memory) {
        const auto size = static_cast<int64_t>(expected.size());
        auto* out = reinterpret_cast<float*>(memory.Allocate(size * 4));
        Launch(kernel, shape, &stream, {out});
        return std::vector<float>(out, out + size);
      },
      expected);
}

std::vector<float> Each(int count, float (*value)(int)) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = value(i);
  return values;
}

void IndexKernel(Out p) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  p.out[at] = static_cast<float>(1000 * block + thread);
}

TEST_CASE("every thread of every block runs once, with its own index") {
  const LaunchShape shape = {.blocks = {3, 2, 2}, .threads = {5, 3, 4}};
  CHECK(Compare(&IndexKernel, shape, Each(12 * 60, [](int i) {
          return static_cast<float>(1000 * (i / 60) + i % 60);
        })) == Faults{});
}

// Two halves of a warp meet apart from each other, each as often as it likes.
void HalfWarpKernel(Out p) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint32_t mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  int count = 0;
  for (int i = 0; i < (lane < 16 ? 1 : 3); ++i) {
    count += static_cast<int>(__ballot_sync(mask, lane % 2 == 0) == (mask & 0x55555555u));
  }
  p.out[lane] = static_cast<float>(count);
}

TEST_CASE("lanes meet under their mask") {
  CHECK(Compare(&HalfWarpKernel, {.threads = {32}},
                Each(32, [](int i) { return i < 16 ? 1.0f : 3.0f; })) == Faults{});
}

void VoteKernel(Out p) {
  const int lane = static_cast<int>(threadIdx.x);
  const bool any = __any_sync(kAllLanes, lane == 7), none = __any_sync(kAllLanes, lane > 99);
  const bool all = __all_sync(kAllLanes, lane < 32), most = __all_sync(kAllLanes, lane < 31);
  p.out[lane] = static_cast<float>(any + 2 * none + 4 * all + 8 * most);
}

TEST_CASE("votes count the lanes that are there") {
  CHECK(Compare(&VoteKernel, {.threads = {32}}, std::vector<float>(32, 5.0f)) == Faults{});
  // A warp of 9 lanes.
  CHECK(Compare(&VoteKernel, {.threads = {9}}, std::vector<float>(9, 13.0f)) == Faults{});
}

// Lane 3 has ended when the others want its value.
void EndedLaneKernel(Out p) {
  const int lane = static_cast<int>(threadIdx.x);
  p.out[lane] = 0;
  if (lane == 3) return;
  p.out[lane] = std::isnan(__shfl_sync(kAllLanes, 1.0f, lane < 16 ? 3 : 4)) ? 1.0f : 2.0f;
}

TEST_CASE("a lane that has ended is not waited for, and gives poison") {
  CHECK(Compare(&EndedLaneKernel, {.threads = {32}}, Each(32, [](int i) {
          if (i == 3) return 0.0f;
          return i < 16 ? 1.0f : 2.0f;
        })) == Faults{});
}

// Whether shared memory, static and dynamic, is poison at the start; then writes it.
void PoisonKernel(Out p) {
  TESSERA_SHARED(float, fixed, 64);
  TESSERA_DYNAMIC_SHARED(memory);
  auto* dynamic = reinterpret_cast<float*>(memory);
  const unsigned thread = threadIdx.x;
  const bool poisoned = std::isnan(fixed[thread]) && std::isnan(dynamic[thread]);
  fixed[thread] = dynamic[thread] = 1.0f;
  p.out[blockIdx.x * blockDim.x + thread] = poisoned ? 1.0f : 0.0f;
}

TEST_CASE("a block finds nothing of the block before it in shared memory") {
  CHECK(Compare(&PoisonKernel, {.blocks = {3}, .threads = {64}, .shared_bytes = 256},
                std::vector<float>(192, 1.0f)) == Faults{});
}

// A chain through all threads of the block: thread i adds to what i - 1 wrote.
void ChainKernel(Out p) {
  TESSERA_SHARED(float, chain, 96);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < 96; ++i) {
    if (thread == i) chain[i] = i == 0 ? 1.0f : chain[i - 1] + static_cast<float>(i);
    __syncthreads();
  }
  p.out[thread] = chain[95 - thread];
}

TEST_CASE("__syncthreads orders what threads write and read") {
  CHECK(Compare(&ChainKernel, {.threads = {96}}, Each(96, [](int i) {
          const int n = 95 - i;
          return 1.0f + static_cast<float>(n * (n + 1) / 2);
        })) == Faults{});
}

void EarlyEndKernel(Out p) {
  TESSERA_SHARED(float, last, 1);
  const unsigned thread = threadIdx.x;
  p.out[thread] = 0;
  if (thread % 3 == 0) return;
  if (thread == 64) last[0] = 7;
  __syncthreads();
  p.out[thread] = last[0];
}

TEST_CASE("a barrier does not wait for threads that have ended") {
  CHECK(Compare(&EarlyEndKernel, {.threads = {80}},
                Each(80, [](int i) { return i % 3 == 0 ? 0.0f : 7.0f; })) == Faults{});
}

TEST_CASE("shapes that CUDA refuses are refused, and nothing runs") {
  EmulatedStream stream;
  float value = 5;
  const auto launch = [&](const LaunchShape& shape) {
    return Launch(&IndexKernel, shape, &stream, {&value});
  };
  CHECK(launch({.blocks = {0}}) == cudaErrorInvalidConfiguration);
  CHECK(launch({.blocks = {1, 65536}}) == cudaErrorInvalidConfiguration);
  CHECK(launch({.threads = {1025}}) == cudaErrorInvalidConfiguration);
  CHECK(launch({.threads = {32, 33}}) == cudaErrorInvalidConfiguration);
  CHECK(launch({.threads = {1, 1, 65}}) == cudaErrorInvalidConfiguration);
  CHECK(launch({.shared_bytes = 228 << 10}) == cudaErrorInvalidConfiguration);
  CHECK(value == 5);
  CHECK(launch({}) == cudaSuccess);
  CHECK(value == 0);
}

TEST_CASE("schedules are named, and their number says what they are") {
  CHECK(Describe(ScheduleFromSeed(1)) ==
        "lanes descending, warps descending, blocks descending, copies land when issued, seed 1");
  CHECK(Describe(ScheduleFromSeed(7)) == Describe(ScheduleFromSeed(7)));
  bool random_warps = false;
  for (int seed = 4; seed < 12; ++seed) {
    random_warps |= ScheduleFromSeed(seed).warps == Order::kRandom;
  }
  CHECK(random_warps);
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated

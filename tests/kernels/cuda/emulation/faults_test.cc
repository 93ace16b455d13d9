// What the emulator says of kernels that would hang, or whose result a GPU does not define.
#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/launch/gpu_limits.h"
#include "kernels/cuda/warp_ops.h"
#include "tests/kernels/cuda/emulation/every_schedule.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

using Catch::Contains;

struct NoParams {};

struct Outcome {
  cudaError_t error, next_error;
  std::string failure;
};

void NothingKernel(NoParams) {}

// The failure of a launch under the given schedule, and what the stream says to the next launch.
Outcome Run(void (*kernel)(NoParams), const LaunchShape& shape, int seed = 0) {
  EmulatedStream stream;
  stream.set_schedule(ScheduleFromSeed(seed));
  const cudaError_t error = Launch(kernel, shape, &stream, {});
  const cudaError_t next_error = Launch(&NothingKernel, {}, &stream, {});
  return {error, next_error, std::string(stream.failure().message())};
}

void HalfBlockKernel(NoParams) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    SyncNamedBarrier(3, 64);
  }
}

TEST_CASE("a deadlock names block, threads and what each waits for") {
  const Outcome outcome = Run(&HalfBlockKernel, {.blocks = {4, 2}, .threads = {64}}, 1);
  CHECK(outcome.error == cudaErrorLaunchFailure);
  CHECK_THAT(outcome.failure, Contains("CUDA kernel launched at faults_test.cc:"));
  CHECK_THAT(outcome.failure, Contains("block (3, 1, 0): deadlock: threads 0-31 wait in "
                                       "__syncthreads at faults_test.cc:"));
  CHECK_THAT(outcome.failure,
             Contains("; threads 32-63 wait in SyncNamedBarrier at faults_test.cc:"));
  CHECK_THAT(outcome.failure, Contains(" for barrier 3; schedule: lanes descending"));
}

TEST_CASE("a fault is sticky, a later launch does not run") {
  CHECK(Run(&HalfBlockKernel, {.threads = {64}}).next_error == cudaErrorLaunchFailure);
  CHECK(Run(&NothingKernel, {.threads = {64}}).next_error == cudaSuccess);
}

// The GPU of a block of code.
class AsCapability {
 public:
  explicit AsCapability(int capability) { SetCapability(capability); }
  ~AsCapability() { SetCapability(90); }
};

void ManyFloatsKernel(NoParams) {
  TESSERA_SHARED(float, values, 26 << 8);  // 26 KiB
  values[threadIdx.x] = 0;
}

TEST_CASE("a GPU refuses blocks with more shared memory than it has") {
  const LaunchShape large = {.threads = {32}, .shared_bytes = 110 << 10};
  for (const int capability : kEmulatedCapabilities) {
    CAPTURE(capability);
    const AsCapability as(capability);
    const bool has = capability == 80 || capability == 90;
    CHECK(Run(&NothingKernel, large).error == (has ? cudaSuccess : cudaErrorInvalidConfiguration));
    // Arrays that the kernel declares count too.
    const Outcome outcome = Run(&ManyFloatsKernel, {.threads = {32}, .shared_bytes = 74 << 10});
    CHECK((outcome.error == cudaSuccess) == has);
    if (capability == 75) {
      CHECK(outcome.error == cudaErrorInvalidConfiguration);
    } else if (!has) {
      CHECK_THAT(outcome.failure, Contains("no shared memory is left"));
    }
  }
}

template <typename T>
void ProductKernel(NoParams) {
  float sums[4] = {};
  Mma16x8x8<T>(sums, {0, 0}, 0);
}

TEST_CASE("a GPU of 7.5 has no products of bf16") {
  for (const int capability : kEmulatedCapabilities) {
    CAPTURE(capability);
    const AsCapability as(capability);
    CHECK(Run(&ProductKernel<Float16>, {.threads = {32}}).error == cudaSuccess);
    const Outcome outcome = Run(&ProductKernel<BFloat16>, {.threads = {32}});
    CHECK((outcome.error == cudaSuccess) == (capability >= 80));
    if (capability >= 80) continue;
    CHECK_THAT(outcome.failure, Contains("Mma16x8x8 at faults_test.cc:"));
    CHECK_THAT(outcome.failure, Contains("a GPU of capability 7.5 has no arithmetic in bf16"));
  }
}

void WaitingKernel(NoParams) { WaitForEarlierLaunches(); }

void HalfWaitingKernel(NoParams) {
  if (threadIdx.x < 32) WaitForEarlierLaunches();
}

void HastyKernel(NoParams) {
  LetNextLaunchBegin();
  WaitForEarlierLaunches();
}

void OrderlyKernel(NoParams) {
  WaitForEarlierLaunches();
  LetNextLaunchBegin();
}

TEST_CASE("a thread of an early launch that does not wait for earlier ones in time is a fault") {
  const auto launched = [](void (*kernel)(NoParams)) {
    EmulatedStream stream;
    CHECK(Launch(&NothingKernel, {.threads = {64}}, &stream, {}) == cudaSuccess);
    const cudaError_t error = LaunchEarly(kernel, {.threads = {64}}, &stream, {});
    return StrCat(static_cast<int>(error), ": ", std::string(stream.failure().message()));
  };
  CHECK(launched(&WaitingKernel) == "0: ");
  CHECK_THAT(launched(&HalfWaitingKernel),
             Contains("thread (32, 0, 0)") && Contains("ends without WaitForEarlierLaunches"));
  CHECK(launched(&OrderlyKernel) == "0: ");
  CHECK_THAT(launched(&HastyKernel),
             Contains("LetNextLaunchBegin") &&
                 Contains("lets the next launch begin without WaitForEarlierLaunches"));
}

void PartOfWarpKernel(NoParams) {
  if (threadIdx.x % 5 == 4) return;
  if (threadIdx.x == 2) __syncwarp(0xc);  // for lane 3, which waits for all
  __syncwarp();
}

TEST_CASE("lanes that wait under unlike masks are a deadlock") {
  CHECK_THAT(Run(&PartOfWarpKernel, {.threads = {10}}).failure,
             Contains("deadlock: threads 0-1, 3 and 5-8 wait in __syncwarp at faults_test.cc:") &&
                 Contains("; thread 2 wait") && Contains("; threads 4 and 9 ended"));
}

void TwoBarriersKernel(NoParams) {
  if (threadIdx.x == 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_CASE("__syncthreads at two places of the source is a fault") {
  CHECK_THAT(Run(&TwoBarriersKernel, {.threads = {64}}).failure,
             Contains("thread (40, 0, 0): __syncthreads at faults_test.cc:") &&
                 Contains("other threads of the block are in __syncthreads at faults_test.cc:"));
}

void UnlikeInstructionsKernel(NoParams) {
  if (threadIdx.x < 8) {
    __any_sync(kAllLanes, true);
  } else {
    __syncwarp();
  }
}

TEST_CASE("lanes of a warp in different instructions are a fault") {
  CHECK_THAT(
      Run(&UnlikeInstructionsKernel, {.threads = {32}}).failure,
      Contains("__syncwarp at faults_test.cc:") && Contains("lane 0 of the warp is in __any_sync"));
}

void ForeignMaskKernel(NoParams) { __syncwarp(0x1); }

TEST_CASE("a lane outside of its own mask is a fault") {
  CHECK_THAT(Run(&ForeignMaskKernel, {.threads = {2}}).failure,
             Contains("thread (1, 0, 0)") && Contains("the lane is not in its own mask"));
}

void NarrowWarpProductKernel(NoParams) {
  float c[4] = {};
  const uint32_t a[4] = {}, b[2] = {};
  Mma16x8x16<BFloat16>(c, a, b);
}

TEST_CASE("a matrix product needs a whole warp") {
  CHECK(Run(&NarrowWarpProductKernel, {.threads = {32}}).error == cudaSuccess);
  CHECK_THAT(Run(&NarrowWarpProductKernel, {.threads = {31}}).failure,
             Contains("Mma16x8x16") && Contains("needs all 32 lanes of the warp, of which 31 run"));
}

alignas(16) unsigned char global_bytes[64];

template <int offset, bool shared>
void MatrixLoadKernel(NoParams) {
  TESSERA_DYNAMIC_SHARED(memory);
  uint32_t r[4];
  LoadMatrices(r, (shared ? memory : global_bytes) + offset);
}

TEST_CASE("rows of matrices lie in shared memory, at multiples of 16 bytes") {
  const LaunchShape shape = {.threads = {32}, .shared_bytes = 64};
  CHECK(Run(&MatrixLoadKernel<48, true>, shape).error == cudaSuccess);
  CHECK_THAT(Run(&MatrixLoadKernel<8, true>, shape).failure,
             Contains("not a multiple of 16 bytes"));
  CHECK_THAT(Run(&MatrixLoadKernel<64, true>, shape).failure,
             Contains("not in the block's shared"));
  CHECK_THAT(Run(&MatrixLoadKernel<0, false>, shape).failure,
             Contains("not in the block's shared"));
}

template <int to, int from>
void CopyKernel(NoParams) {
  TESSERA_DYNAMIC_SHARED(memory);
  CopyAsync16(memory + to, global_bytes + from, true);
  CommitCopies();
  WaitCopies<0>();
}

void ForgottenCopyKernel(NoParams) {
  TESSERA_DYNAMIC_SHARED(memory);
  CopyAsync16(memory, global_bytes, true);
  CommitCopies();
}

TEST_CASE("asynchronous copies are aligned, go to shared memory and are waited for") {
  const LaunchShape shape = {.shared_bytes = 64};
  CHECK(Run(&CopyKernel<48, 16>, shape).error == cudaSuccess);
  CHECK_THAT(Run(&CopyKernel<8, 16>, shape).failure, Contains("not a multiple of 16 bytes"));
  CHECK_THAT(Run(&CopyKernel<16, 8>, shape).failure, Contains("not a multiple of 16 bytes"));
  CHECK_THAT(Run(&CopyKernel<64, 16>, shape).failure, Contains("not in the block's shared memory"));
  CHECK_THAT(
      Run(&ForgottenCopyKernel, shape).failure,
      Contains("thread (0, 0, 0): the end of the kernel: asynchronous copies are outstanding"));
}

void SharedOverrunKernel(NoParams) {
  TESSERA_SHARED(int, counts, 8);
  int* const to = counts;  // whose end UBSan does not know
  to[threadIdx.x] = 1;
}

void DynamicOverrunKernel(NoParams) {
  TESSERA_DYNAMIC_SHARED(memory);
  memory[threadIdx.x] = 1;
}

TEST_CASE("writes beyond shared memory are found") {
  CHECK(Run(&SharedOverrunKernel, {.threads = {8}}).error == cudaSuccess);
  CHECK_THAT(Run(&SharedOverrunKernel, {.threads = {9}}).failure,
             Contains("wrote byte 32 of static shared memory of 32 bytes"));
  CHECK_THAT(Run(&DynamicOverrunKernel, {.threads = {8}, .shared_bytes = 7}).failure,
             Contains("wrote byte 7 of dynamic shared memory of 7 bytes"));
}

void HugeSharedKernel(NoParams) {
  TESSERA_SHARED(float, most, 100000);
  most[0] = 1;
}

TEST_CASE("shared memory that no GPU has is a fault") {
  CHECK_THAT(Run(&HugeSharedKernel, {}).failure, Contains("no shared memory is left"));
}

void UnlikeCountsKernel(NoParams) { SyncNamedBarrier(1, threadIdx.x < 32 ? 64 : 32); }
void OddCountKernel(NoParams) { SyncNamedBarrier(1, 33); }
void SixteenthBarrierKernel(NoParams) { SyncNamedBarrier(16, 32); }

TEST_CASE("named barriers: numbers and counts") {
  const LaunchShape shape = {.threads = {64}};
  CHECK_THAT(Run(&UnlikeCountsKernel, shape).failure,
             Contains("is for 32 threads here, and for 64"));
  CHECK_THAT(Run(&OddCountKernel, shape).failure, Contains("no whole number of the block's warps"));
  CHECK_THAT(Run(&SixteenthBarrierKernel, shape).failure, Contains("is not one of 0 to 15"));
}

TEST_CASE("a freed allocation is poison, and may not be written") {
  DeviceMemory memory;
  float* data = Upload(memory, std::vector<float>{1, 2, 3});
  CHECK(data[1] == 2);
  memory.Free(reinterpret_cast<std::byte*>(data));
  CHECK(data[1] != data[1]);
  CHECK(memory.CheckGuards().ok());
  data[2] = 1;
  CHECK_THAT(std::string(memory.CheckGuards().message()),
             Contains("byte 8 of allocation 0, of 12 bytes and freed, was written"));
}

}  // namespace
}  // namespace tessera::kernels::cuda::emulated

// One device of the platform that this is compiled for, as tests of kernels use it: the emulated
// one, or GPU 0. Single-threaded; a call of the runtime that fails fails the test case.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/runtime.h"
#include "tests/catch_skip.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

// Ends a TEST_CASE that has no device.
#define TESSERA_SKIP_WITHOUT_DEVICE() \
  if (!HasDevice()) TESSERA_SKIP("no CUDA device; the kernels were compiled and linked")

inline bool HasDevice() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

class TestDevice {
 public:
  TestDevice() { Check(cudaStreamCreate(&stream_)); }
  ~TestDevice() {
    for (void* data : allocations_) cudaFree(data);
    cudaStreamDestroy(stream_);
  }
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;

  cudaStream_t stream() const { return stream_; }

  // Lives as long as the device. Under the emulator poison, on a GPU what was there.
  template <typename T>
  T* Allocate(int64_t count) {
    void* data = nullptr;
    Check(cudaMalloc(&data, static_cast<size_t>(count) * sizeof(T)));
    allocations_.push_back(data);
    return static_cast<T*>(data);
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* data = Allocate<T>(static_cast<int64_t>(values.size()));
    Check(cudaMemcpyAsync(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                          stream_));
    Synchronize();
    return data;
  }
  template <typename T>
  std::vector<std::remove_const_t<T>> Download(T* data, int64_t count) {
    std::vector<std::remove_const_t<T>> values(count);
    Check(cudaMemcpyAsync(values.data(), data, static_cast<size_t>(count) * sizeof(T),
                          cudaMemcpyDeviceToHost, stream_));
    Synchronize();
    return values;
  }
  void Synchronize() { Check(cudaStreamSynchronize(stream_)); }
  // Of a launch, or of anything else.
  void Check(cudaError_t error) {
    INFO(cudaGetErrorString(error) << Reason());
    REQUIRE(error == cudaSuccess);
  }

 private:
  std::string Reason() const {
#ifdef TESSERA_CUDA_EMULATED
    return stream_ == nullptr ? "" : ": " + std::string(stream_->failure().message());
#else
    return "";
#endif
  }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> allocations_;
};

// Runs the test on a device of its own; under the emulator once per schedule, and all of them must
// give the same bits and leave the guards of memory as they are. Returns the result.
template <typename T>
std::vector<T> RunEverySchedule(const std::function<std::vector<T>(TestDevice&)>& run) {
  std::vector<T> first;
#ifdef TESSERA_CUDA_EMULATED
#ifdef __SANITIZE_THREAD__
  constexpr int kSchedules = 1;  // each switch of fibers costs some 50 us, all on one thread
#else
  constexpr int kSchedules = 8;
#endif
  for (int seed = 0; seed < kSchedules; ++seed) {
    const Schedule schedule = ScheduleFromSeed(seed);
    INFO("schedule: " << Describe(schedule));
    TestDevice device;
    device.stream()->set_schedule(schedule);
    const std::vector<T> result = run(device);
    REQUIRE(CheckMemoryGuards().message() == "");
    if (seed == 0) first = result;
    REQUIRE(result.size() == first.size());
    REQUIRE(
        (first.empty() || std::memcmp(result.data(), first.data(), first.size() * sizeof(T)) == 0));
  }
#else
  TestDevice device;
  first = run(device);
#endif
  return first;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM

// Which devices conformance tests and golden models run on.
//
// All that need no GPU, unless the environment names one in CUDA_TEST_DEVICE: "cuda-emulated",
// "cuda-emulated-75" for that of another capability than 9.0, or a GPU as "cuda:0". Then tests of
// devices run on it alone: so gpu_check runs them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera::kernels::cuda {

enum class UnderTest { kAllWithoutGpu, kEmulated, kGpu };
UnderTest DevicesUnderTest();

struct CudaUnderTest {
  std::unique_ptr<Device> device;
  absl::Status (*check_memory)() = nullptr;  // on the emulated one: its guards
};
// The GPU where one is named, else the emulated device. Unimplemented: built without a toolkit.
absl::StatusOr<CudaUnderTest> MakeCudaUnderTest(int64_t memory_bytes);

}  // namespace tessera::kernels::cuda

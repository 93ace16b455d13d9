#include "tests/kernels/device_under_test.h"

#include <cstdlib>
#include <string_view>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"

namespace tessera::kernels::cuda {
namespace {

constexpr std::string_view kGpuPrefix = "cuda:";
constexpr std::string_view kEmulatedPrefix = "cuda-emulated-";

std::string_view Named() {
  const char* const name = std::getenv("CUDA_TEST_DEVICE");
  return name == nullptr ? "" : name;
}

absl::StatusOr<std::unique_ptr<Device>> MakeEmulated(int64_t memory_bytes) {
  if (Named().starts_with(kEmulatedPrefix)) {
    emulated::SetCapability(std::atoi(Named().substr(kEmulatedPrefix.size()).data()));
  }
  return emulated::CreateCudaDevice({.memory_bytes = memory_bytes});
}

absl::StatusOr<std::unique_ptr<Device>> MakeGpu([[maybe_unused]] int64_t memory_bytes) {
#ifdef TESSERA_WITH_CUDA
  const int index = std::atoi(Named().substr(kGpuPrefix.size()).data());
  return gpu::CreateCudaDevice({.index = index, .memory_bytes = memory_bytes});
#else
  return absl::UnimplementedError("this test was built without a CUDA toolkit");
#endif
}

}  // namespace

UnderTest DevicesUnderTest() {
  if (Named().starts_with(kGpuPrefix)) return UnderTest::kGpu;
  return Named().empty() ? UnderTest::kAllWithoutGpu : UnderTest::kEmulated;
}

absl::StatusOr<CudaUnderTest> MakeCudaUnderTest(int64_t memory_bytes) {
  const bool gpu = DevicesUnderTest() == UnderTest::kGpu;
  auto device = gpu ? MakeGpu(memory_bytes) : MakeEmulated(memory_bytes);
  if (!device.ok()) return device.status();
  return CudaUnderTest{*std::move(device), gpu ? nullptr : &emulated::CheckMemoryGuards};
}

}  // namespace tessera::kernels::cuda

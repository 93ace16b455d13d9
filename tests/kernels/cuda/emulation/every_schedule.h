// Runs a kernel under many schedules of the emulator and compares bits. Single-threaded.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/device_memory.h"
#include "kernels/cuda/emulation/runtime.h"

namespace tessera::kernels::cuda::emulated {

// Launches on the stream and returns what the kernel wrote; memory is new for each schedule.
using RunKernel = std::function<std::vector<float>(EmulatedStream& stream, DeviceMemory& memory)>;

// One line for each schedule of the first `schedules` under which the launch failed, a guard was
// written, or a result differs from `expected` in its bits. Empty for a right kernel.
std::vector<std::string> FaultsUnderSchedules(const RunKernel& run,
                                              const std::vector<float>& expected,
                                              int schedules = 12);

// Memory with a copy of the values.
template <typename T>
T* Upload(DeviceMemory& memory, const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  auto* data = reinterpret_cast<T*>(memory.Allocate(bytes));
  std::copy(values.begin(), values.end(), data);
  return data;
}

}  // namespace tessera::kernels::cuda::emulated

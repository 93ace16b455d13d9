#include "tests/kernels/cuda/emulation/every_schedule.h"

#include <cstring>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda::emulated {
namespace {

std::string FirstDifference(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (actual.size() != expected.size()) {
    return StrCat(actual.size(), " values instead of ", expected.size());
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(float)) == 0) continue;
    return StrCat("value ", i, " is ", actual[i], ", must be ", expected[i]);
  }
  return "";
}

}  // namespace

std::vector<std::string> FaultsUnderSchedules(const RunKernel& run,
                                              const std::vector<float>& expected, int schedules) {
  std::vector<std::string> faults;
  for (int seed = 0; seed < schedules; ++seed) {
    EmulatedStream stream;
    DeviceMemory memory;
    stream.set_schedule(ScheduleFromSeed(seed));
    const std::vector<float> actual = run(stream, memory);
    std::string fault(StdView(stream.failure().message()));
    if (fault.empty()) fault = StdView(memory.CheckGuards().message());
    if (fault.empty()) fault = FirstDifference(actual, expected);
    if (!fault.empty()) {
      faults.push_back(StrCat(fault, " (", Describe(ScheduleFromSeed(seed)), ")"));
    }
  }
  return faults;
}

}  // namespace tessera::kernels::cuda::emulated

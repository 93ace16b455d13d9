// tessera-worker --list-devices --measure, with CPUs in place of GPUs.
#include "worker/measured_list.h"

#include <catch2/catch.hpp>

#include "kernels/cpu/device/cpu_device.h"

namespace tessera::worker {
namespace {

constexpr kernels::ProbeOptions kQuick = {
    .buffer_bytes = 2 << 20, .matrix_size = 128, .rows = 8, .runs = 1};

absl::StatusOr<OpenedGpu> Open(const std::string& device, int64_t, double) {
  if (device == "cuda:1") return absl::FailedPreconditionError("cuda:1 is taken");
  auto made = kernels::CreateCpuDevice({.memory_bytes = int64_t{1} << 28});
  REQUIRE(made.ok());
  OpenedGpu opened;
  opened.device = *std::move(made);
  return opened;
}

}  // namespace

TEST_CASE("GPUs that can be used are measured, and what fails is said") {
  v1::DeviceList list;
  for (const char* name : {"cuda:0", "cuda:1", "cuda:2"}) list.add_devices()->set_device(name);
  list.mutable_devices(2)->set_problem("it is old");
  MeasureListed(&Open, kQuick, &list);
  CHECK(list.devices(0).problem() == "");
  CHECK(list.devices(0).half_flops_per_second() > 0);
  CHECK(list.devices(0).info().memory_read_bytes_per_second() > 0);
  CHECK(list.devices(1).problem() == "cuda:1 is taken");
  CHECK(list.devices(1).half_flops_per_second() == 0);
  CHECK(list.devices(2).problem() == "it is old");
  CHECK(list.devices(2).half_flops_per_second() == 0);
}

}  // namespace tessera::worker

// What --list-devices prints, with --measure too, and what a GPU's worker registers.
#include "worker/device_list.h"

#include <google/protobuf/util/json_util.h>

#include <catch2/catch.hpp>
#include <string>

#include "kernels/cpu/device/cpu_device.h"
#include "tests/temporary_folder.h"
#include "worker/devices/cuda/cuda_devices.h"

namespace tessera::worker {
namespace {

using Catch::Contains;

kernels::cuda::GpuList TwoGpus() {
  kernels::cuda::GpuList list;
  list.driver_version = "580.65.06";
  list.gpus.resize(2);
  kernels::cuda::Gpu& first = list.gpus[0];
  first.index = 0;
  first.device = "cuda:0";
  first.name = "NVIDIA RTX A6000";
  first.uuid = "GPU-1111";
  first.bus_id = "0000:4A:00.0";
  first.capability = 86;
  first.memory_bytes = int64_t{48} << 30;
  list.gpus[1] = first;
  list.gpus[1].device = "cuda:1";
  list.gpus[1].name = "Tesla V100-SXM2-16GB";
  list.gpus[1].capability = 75;
  list.gpus[1].bus_id = "";
  list.gpus[1].problem = "it is old";
  return list;
}

v1::DeviceList ListOf(const kernels::cuda::GpuList& gpus, const std::string& build_problem,
                      const std::string& root = "/") {
  v1::DeviceList list;
  AppendGpus(gpus, build_problem, &list, root);
  return list;
}

// A CPU in place of a GPU.
absl::StatusOr<OpenedDevice> OpenCpu(const DeviceFlags& flags, const DeviceShare&) {
  if (flags.name == "cuda:1") return absl::FailedPreconditionError("cuda:1 is taken");
  auto made = kernels::CreateCpuDevice({.memory_bytes = int64_t{1} << 28});
  REQUIRE(made.ok());
  OpenedDevice opened;
  opened.device = *std::move(made);
  opened.probe = {.buffer_bytes = 2 << 20, .matrix_size = 128, .rows = 8, .runs = 1};
  return opened;
}

}  // namespace

TEST_CASE("the list names each GPU, its NUMA node's cores, and what is wrong with it") {
  const tests::TemporaryFolder root;
  root.Write("/sys/bus/pci/devices/0000:4a:00.0/local_cpulist", "0-3,8\n");
  const v1::DeviceList list = ListOf(TwoGpus(), "", root.path());
  REQUIRE(list.devices_size() == 2);
  CHECK(list.devices(0).device() == "cuda:0");
  CHECK(list.devices(0).problem() == "");
  CHECK(list.devices(0).near_cores_size() == 5);
  CHECK(list.devices(0).near_cores(4) == 8);
  const v1::DeviceInfo& info = list.devices(0).info();
  CHECK(info.kind() == "A6000");
  CHECK(info.gpu_name() == "NVIDIA RTX A6000");
  CHECK(info.uuid() == "GPU-1111");
  CHECK(info.compute_capability() == "8.6");
  CHECK(info.driver_version() == "580.65.06");
  CHECK(info.memory_bytes() == int64_t{48} << 30);
  CHECK(info.data_types_size() == 4);
  CHECK(list.devices(1).problem() == "it is old");
  CHECK(list.devices(1).info().data_types_size() == 3);  // no bfloat16
  CHECK(list.devices(1).near_cores().empty());
  const std::string text = DeviceListText(list);
  CHECK_THAT(text, Contains("cuda:0  NVIDIA RTX A6000") && Contains("8.6") && Contains("0-3,8") &&
                       Contains("49152 MiB") && Contains("GPU-1111") &&
                       Contains("cuda:1 cannot be used: it is old") &&
                       Contains("driver 580.65.06"));
  v1::DeviceList read;
  REQUIRE(google::protobuf::util::JsonStringToMessage(DeviceListJson(list), &read).ok());
  CHECK(read.SerializeAsString() == list.SerializeAsString());
}

TEST_CASE("without a GPU the list says why, and what is always there") {
  kernels::cuda::GpuList none;
  none.no_gpus = "there is no NVIDIA driver";
  const v1::DeviceList list = ListOf(none, "");
  CHECK(list.devices().empty());
  CHECK_THAT(DeviceListText(list),
             Contains("no GPU: there is no NVIDIA driver") && Contains("cpu, and cuda-emulated"));
  CHECK_THAT(DeviceListJson(list), Contains("\"no_devices\": \"there is no NVIDIA driver\""));
}

TEST_CASE("what the build lacks is said of every GPU that has no problem of its own") {
  const v1::DeviceList list = ListOf(TwoGpus(), "built without CUDA");
  CHECK(list.devices(0).problem() == "built without CUDA");
  CHECK(list.devices(1).problem() == "it is old");
}

TEST_CASE("cards that can be used are measured, and what fails is said") {
  const DeviceType cards = {
      .name = "cuda:", .takes = [](std::string_view) { return true; }, .open = &OpenCpu};
  const DeviceType* const types[] = {&cards};
  v1::DeviceList list;
  for (const char* name : {"cuda:0", "cuda:1", "cuda:2", "other:0"})
    list.add_devices()->set_device(name);
  list.mutable_devices(2)->set_problem("it is old");
  MeasureListed(types, &list);
  CHECK(list.devices(0).problem() == "");
  CHECK(list.devices(0).half_flops_per_second() > 0);
  CHECK(list.devices(0).info().memory_read_bytes_per_second() > 0);
  CHECK(list.devices(1).problem() == "cuda:1 is taken");
  CHECK(list.devices(1).half_flops_per_second() == 0);
  CHECK(list.devices(2).problem() == "it is old");
  CHECK(list.devices(2).half_flops_per_second() == 0);
  CHECK(list.devices(3).problem() == "other:0: no type of device opens it");
}

}  // namespace tessera::worker

// What a worker says of the GPUs of a machine, and of machines without usable ones.
#include "kernels/cuda/driver/gpu_list.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "tests/kernels/cuda/driver/fake_driver.h"

namespace tessera::kernels::cuda {
namespace {

using Catch::Contains;
using tests::FakeGpu;
using tests::FakeMachine;
using tests::TablesOf;

constexpr int64_t kGib = int64_t{1} << 30;

std::string WhyNone(FakeMachine machine, const char* visible = nullptr) {
  const GpuList list = ListGpus(TablesOf(&machine), visible);
  CHECK(list.gpus.empty());
  return list.no_gpus;
}

}  // namespace

TEST_CASE("GPUs are listed as the driver describes them") {
  FakeMachine machine;
  machine.gpus = {{}, {.name = "NVIDIA H100 80GB HBM3", .uuid_byte = 0xab, .capability = 90}};
  const GpuList list = ListGpus(TablesOf(&machine), nullptr);
  CHECK(list.no_gpus == "");
  CHECK(list.driver_version == "580.65.06");
  REQUIRE(list.gpus.size() == 2);
  const Gpu& gpu = list.gpus[1];
  CHECK(gpu.device == "cuda:1");
  CHECK(gpu.name == "NVIDIA H100 80GB HBM3");
  CHECK(gpu.uuid == "GPU-abababab-abab-abab-abab-abababababab");
  CHECK(gpu.bus_id == "0000:41:00.0");
  CHECK(gpu.capability == 90);
  CHECK(gpu.multiprocessors == 84);
  CHECK(gpu.memory_bytes == 48 * kGib);
  CHECK(gpu.problem == "");
  machine.has_nvml = false;
  CHECK(ListGpus(TablesOf(&machine), nullptr).driver_version == "CUDA 13.0");
}

TEST_CASE("kernels are loaded with the device, unless the user says otherwise") {
  FakeMachine machine;
  machine.gpus = {{}};
  unsetenv("CUDA_MODULE_LOADING");
  ListGpus(TablesOf(&machine), nullptr);
  REQUIRE(std::getenv("CUDA_MODULE_LOADING") != nullptr);
  CHECK(std::string(std::getenv("CUDA_MODULE_LOADING")) == "EAGER");
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  ListGpus(TablesOf(&machine), nullptr);
  CHECK(std::string(std::getenv("CUDA_MODULE_LOADING")) == "LAZY");
  unsetenv("CUDA_MODULE_LOADING");
}

TEST_CASE("where there is no GPU to use, the list says why and what to do") {
  CHECK_THAT(WhyNone({.has_driver = false}), Contains("no NVIDIA driver") &&
                                                 Contains("libcuda.so.1: cannot open") &&
                                                 Contains("install NVIDIA's driver 580 or later"));
  FakeMachine old;
  old.cuda_version = 12080;
  old.driver_version = "570.86.15";
  old.gpus = {{}};
  CHECK_THAT(WhyNone(old), Contains("570.86.15") && Contains("CUDA 12.8") &&
                               Contains("older than 580") && Contains("580 or later"));
  FakeMachine broken;
  broken.init_error = 803;
  CHECK_THAT(WhyNone(broken),
             Contains("580.65.06") && Contains("the fake's error (CUDA error 803"));
  CHECK_THAT(WhyNone({.has_nvml = false}), Contains("the driver finds no GPU in this machine"));
  CHECK_THAT(WhyNone({.machine_gpus = 4}),
             Contains("none of the 4 GPUs") && Contains("--gpus all"));
}

TEST_CASE("CUDA_VISIBLE_DEVICES that leaves nothing visible is named, by whatever it names") {
  for (const char* visible : {"", "7", "GPU-99999999", "MIG-99999999"}) {
    INFO(visible);
    CHECK_THAT(WhyNone({.machine_gpus = 2}, visible),
               Contains("CUDA_VISIBLE_DEVICES=\"" + std::string(visible) + "\"") &&
                   Contains("leaves no GPU visible of the 2 in this machine") &&
                   Contains("index (0,1) or UUID (GPU-..., MIG-...)"));
  }
}

TEST_CASE("a GPU is found by index and by UUID, and one that cannot be used is refused") {
  FakeMachine machine;
  machine.gpus = {{.uuid_byte = 0x11},
                  {.name = "Tesla V100-SXM2-16GB", .uuid_byte = 0x12, .capability = 70},
                  {.uuid_byte = 0x13, .compute_mode = kCuProhibited}};
  const GpuList list = ListGpus(TablesOf(&machine), nullptr);
  CHECK(FindGpu(list, "cuda:0")->uuid == "GPU-11111111-1111-1111-1111-111111111111");
  CHECK(FindGpu(list, "cuda:GPU-1111")->index == 0);
  CHECK(FindGpu(list, "cuda:GPU-11111111-1111-1111-1111-111111111111")->index == 0);
  CHECK_THAT(std::string(FindGpu(list, "cuda:GPU-1").status().message()),
             Contains("both GPU-11111111") && Contains("GPU-12121212") && Contains("more of it"));
  for (const char* other : {"cuda:3", "cuda:GPU-77", "cuda:", "cuda:-1", "cuda:x", "cuda:0x"}) {
    INFO(other);
    CHECK_THAT(std::string(FindGpu(list, other).status().message()),
               Contains(other) && Contains("there is no such GPU; there are: cuda:0 (NVIDIA RTX"));
  }
  CHECK_THAT(std::string(FindGpu(list, "cuda:1").status().message()),
             Contains("cuda:1 (Tesla V100-SXM2-16GB) cannot be used") &&
                 Contains("capability 7.0 is below 7.5 (Turing)"));
  CHECK_THAT(std::string(FindGpu(list, "cuda:2").status().message()),
             Contains("compute mode forbids all use") && Contains("nvidia-smi -c DEFAULT"));
  machine = {.has_driver = false};
  CHECK_THAT(
      std::string(FindGpu(ListGpus(TablesOf(&machine), nullptr), "cuda:0").status().message()),
      Contains("cuda:0: no GPU can be used: there is no NVIDIA driver"));
}

TEST_CASE("MIG slices that the driver does not show are listed, and chosen by UUID") {
  FakeMachine machine;
  machine.gpus = {
      {.name = "NVIDIA A100-SXM4-40GB MIG 3g.20gb", .uuid_byte = 0x22, .capability = 80}};
  machine.slices = {
      {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", "MIG-22222222-2222-2222-2222-222222222222"},
      {"NVIDIA A100-SXM4-40GB MIG 2g.10gb", "MIG-33333333-4444-5555-6666-777777777777", 10 * kGib}};
  GpuList list = ListGpus(TablesOf(&machine), nullptr);
  REQUIRE(list.gpus.size() == 2);  // the first is the driver's, not a second one
  CHECK(list.gpus[0].uuid == "MIG-22222222-2222-2222-2222-222222222222");
  CHECK(list.gpus[1].device == "cuda:MIG-33333333-4444-5555-6666-777777777777");
  CHECK(list.gpus[1].capability == 80);
  CHECK(list.gpus[1].memory_bytes == 10 * kGib);
  CHECK(FindGpu(list, "cuda:MIG-3333")->index == -1);
  // What CUDA_VISIBLE_DEVICES leaves out stays out.
  CHECK(ListGpus(TablesOf(&machine), "MIG-22222222-2222-2222-2222-222222222222").gpus.size() == 1);
  CHECK(ListGpus(TablesOf(&machine), "MIG-2222,MIG-3333").gpus.size() == 2);
  CHECK(ListGpus(TablesOf(&machine), "0").gpus.size() == 1);

  CHECK(*VisibleSlice("cuda:MIG-3333", nullptr) == "MIG-3333");
  CHECK(*VisibleSlice("cuda:MIG-3333", "GPU-1,MIG-33") == "MIG-3333");
  CHECK(*VisibleSlice("cuda:0", "1") == "");
  CHECK(*VisibleSlice("cuda:GPU-12", nullptr) == "");
  CHECK_THAT(std::string(VisibleSlice("cuda:MIG-3333", "MIG-22").status().message()),
             Contains("cuda:MIG-3333") && Contains("CUDA_VISIBLE_DEVICES=\"MIG-22\""));
}

TEST_CASE("a GPU that is taken, or full, names who uses it") {
  FakeMachine machine;
  machine.gpus = {{.uuid_byte = 1},
                  {.uuid_byte = 2,
                   .compute_mode = kCuExclusive,
                   .take_error = kCuDeviceUnavailable,
                   .processes = {4711}},
                  {.uuid_byte = 3, .take_error = kCuOutOfMemory, .processes = {12, 34}},
                  {.uuid_byte = 4, .take_error = 999}};
  const DriverTables tables = TablesOf(&machine);
  const GpuList list = ListGpus(tables, nullptr);
  REQUIRE(list.gpus.size() == 4);
  const auto memory = TakeGpu(tables, list.gpus[0]);
  REQUIRE(memory.ok());
  CHECK(memory->free_bytes == 47 * kGib);
  CHECK(memory->total_bytes == 48 * kGib);
  const auto taken = TakeGpu(tables, list.gpus[1]).status();
  CHECK(absl::IsFailedPrecondition(taken));
  CHECK_THAT(std::string(taken.message()),
             Contains("cuda:1 (NVIDIA RTX A6000) is taken") && Contains("one process") &&
                 Contains("in use by process 4711") && Contains("nvidia-smi -c DEFAULT"));
  const auto full = TakeGpu(tables, list.gpus[2]).status();
  CHECK(absl::IsResourceExhausted(full));
  CHECK_THAT(std::string(full.message()),
             Contains("cuda:2") && Contains("no memory left") && Contains("process 12, 34"));
  CHECK_THAT(std::string(TakeGpu(tables, list.gpus[3]).status().message()),
             Contains("cuda:3") && Contains("CUDA error 999"));
  CHECK(machine.taken == 1);  // only what was given is held
}

TEST_CASE("a worker's share of a GPU leaves room for what others use") {
  Gpu gpu;
  gpu.device = "cuda:0";
  CHECK(*UsableBytes(gpu, {.free_bytes = 10 * kGib, .total_bytes = 10 * kGib}, 0.5) == 5 * kGib);
  CHECK(*UsableBytes(gpu, {.free_bytes = 8 * kGib, .total_bytes = 10 * kGib}, 0.5) == 3 * kGib);
  CHECK(*UsableBytes(gpu, {.free_bytes = 8 * kGib, .total_bytes = 10 * kGib}, 1.0) == 8 * kGib);
  const auto full =
      UsableBytes(gpu, {.free_bytes = 4 * kGib, .total_bytes = 10 * kGib}, 0.5).status();
  CHECK(absl::IsResourceExhausted(full));
  CHECK_THAT(std::string(full.message()), Contains("--gpu-memory-utilization 0.5") &&
                                              Contains("5120 MiB") &&
                                              Contains("others use 6144 MiB"));
}

}  // namespace tessera::kernels::cuda

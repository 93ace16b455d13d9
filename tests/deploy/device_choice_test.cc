// Which workers `tessera up --devices` starts, and on which cores.
#include "deploy/device_choice.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "deploy/local_share.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

v1::ListedDevice Gpu(const std::string& device, const std::string& uuid) {
  v1::ListedDevice gpu;
  gpu.set_device(device);
  gpu.mutable_info()->set_gpu_name("NVIDIA L4");
  gpu.mutable_info()->set_uuid(uuid);
  return gpu;
}

v1::DeviceList ThreeGpus() {
  v1::DeviceList list;
  *list.add_devices() = Gpu("cuda:0", "GPU-aaaa");
  list.mutable_devices(0)->add_near_cores(4);
  *list.add_devices() = Gpu("cuda:1", "GPU-bbbb");
  list.mutable_devices(1)->set_problem("it is too old");
  *list.add_devices() = Gpu("cuda:MIG-cccc", "MIG-cccc");
  return list;
}

// Joined by spaces; or the error.
std::string Chosen(std::string_view devices, const v1::DeviceList& list = ThreeGpus()) {
  const auto chosen = ChooseDevices(devices, list);
  if (!chosen.ok()) return std::string(chosen.status().message());
  std::string text;
  for (const DeviceChoice& choice : *chosen) text += (text.empty() ? "" : " ") + choice.device;
  return text;
}

using Shares = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("devices are taken by index, by UUID, all at once, and beside CPUs") {
  CHECK(Chosen("cuda:0") == "cuda:0");
  CHECK(Chosen("cuda:GPU-aaaa") == "cuda:0");
  CHECK(Chosen("cuda:MIG-cc") == "cuda:MIG-cccc");
  CHECK(Chosen("all") == "cuda:0 cuda:MIG-cccc");  // what can be used
  CHECK(Chosen("cuda:0,cpu") == "cuda:0 cpu");
  CHECK(Chosen("cpu,cpu,cuda-emulated", {}) == "cpu cpu cuda-emulated");
  CHECK(ChooseDevices("cuda:0", ThreeGpus())->at(0).near_cores == std::vector<int>{4});
  CHECK(NamesGpus("cpu,all"));
  CHECK(NamesGpus("cuda:1"));
  CHECK_FALSE(NamesGpus("cpu,cuda-emulated"));
}

TEST_CASE("a device that cannot be had is refused with the reason before anything starts") {
  CHECK_THAT(Chosen("cuda:1"),
             Contains("--devices cuda:1: NVIDIA L4 cannot be used: it is too old"));
  CHECK_THAT(Chosen("cuda:7"), Contains("no such GPU; there are: cuda:0 (NVIDIA L4), cuda:1"));
  CHECK_THAT(Chosen("gpu0"), Contains("\"gpu0\" is no device") && Contains("--list-devices"));
  CHECK_THAT(Chosen("cpu,"), Contains("\"\" is no device"));
  CHECK_THAT(Chosen("cuda:0,all"), Contains("cuda:0 is named twice"));
  v1::DeviceList alike = ThreeGpus();
  *alike.add_devices() = Gpu("cuda:2", "GPU-aabb");
  CHECK_THAT(Chosen("cuda:GPU-aa", alike), Contains("both GPU-aaaa and GPU-aabb begin so"));
  CHECK(Chosen("cuda:GPU-aab", alike) == "cuda:2");
  v1::DeviceList none;
  none.set_no_devices("there is no NVIDIA driver");
  CHECK_THAT(Chosen("all", none),
             Contains("--devices all: no GPU can be used: there is no NVIDIA driver"));
  CHECK_THAT(Chosen("cuda:0", none), Contains("--devices cuda:0: no GPU can be used: there is no"));
  v1::DeviceList old;
  *old.add_devices() = ThreeGpus().devices(1);
  CHECK_THAT(Chosen("all", old), Contains("cuda:1: it is too old"));
}

TEST_CASE("a GPU's worker gets cores near it, a CPU's worker the others") {
  const std::vector<int> cores = {0, 1, 2, 3, 4, 5, 6, 7};
  const CoreNeed cpu, gpu_near_6 = {false, {6, 7}}, gpu = {false, {}};
  CHECK(*SplitCoresByNeed(cores, std::vector{gpu_near_6, cpu}) ==
        Shares{{0, 1, 6, 7}, {2, 3, 4, 5}});
  CHECK(*SplitCoresByNeed(cores, std::vector{cpu, gpu, gpu, cpu}) ==
        Shares{{4, 5}, {0, 1}, {2, 3}, {6, 7}});
  CHECK(*SplitCoresByNeed(cores, std::vector{gpu, gpu_near_6}) ==
        Shares{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(*SplitCoresByNeed(std::vector{3, 5}, std::vector{cpu, gpu}) == Shares{{5}, {3}});
  CHECK(*SplitCoresByNeed(std::vector{3}, std::vector{cpu, gpu}) == Shares{{3}, {3}});
  CHECK(*SplitCoresByNeed(cores, std::vector{cpu, cpu}) == *SplitCores(cores, 2));
  CHECK_FALSE(SplitCoresByNeed(std::vector{0}, std::vector<CoreNeed>(9)).ok());
}

}  // namespace tessera::deploy

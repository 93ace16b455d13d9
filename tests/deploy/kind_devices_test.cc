// What a GPU's plan runs on, where nobody names devices.
#include "deploy/kind_devices.h"

#include <catch2/catch.hpp>

#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

LocalWorker Gpu(const std::string& kind) { return {.name = "", .kind = kind, .is_gpu = true}; }

v1::DeviceList Gpus(const std::vector<std::string>& kinds) {
  v1::DeviceList list;
  for (size_t i = 0; i < kinds.size(); ++i) {
    v1::ListedDevice& gpu = *list.add_devices();
    gpu.set_device("cuda:" + std::to_string(i));
    gpu.mutable_info()->set_kind(kinds[i]);
    gpu.add_near_cores(static_cast<int>(i));
  }
  if (kinds.empty()) list.set_no_devices("libcuda.so.1 is not there");
  return list;
}

std::vector<std::string> Names(const absl::StatusOr<std::vector<DeviceChoice>>& chosen) {
  REQUIRE(chosen.status().message() == "");
  std::vector<std::string> names;
  for (const DeviceChoice& choice : *chosen) names.push_back(choice.device);
  return names;
}

using Devices = std::vector<std::string>;

TEST_CASE("each worker gets a GPU of its kind, whatever that is called, and CPUs stay CPUs") {
  const v1::DeviceList gpus = Gpus({"L4", "A6000", "A6000", "NVIDIA Future 9090"});
  const auto chosen = DevicesOfKinds("c.yaml",
                                     {Gpu("RTX-A6000"),
                                      {.name = "", .kind = "cpu"},
                                      Gpu("L4"),
                                      Gpu("a6000"),
                                      Gpu("NVIDIA Future 9090"),
                                      {.name = "", .kind = "cuda-emulated"}},
                                     gpus);
  CHECK(Names(chosen) == Devices{"cuda:1", "cpu", "cuda:0", "cuda:2", "cuda:3", "cuda-emulated"});
  CHECK((*chosen)[0].near_cores == std::vector<int>{1});
  CHECK((*chosen)[2].gpu.info().kind() == "L4");
}

TEST_CASE("a GPU's plan is refused by name on a machine without such a GPU") {
  const auto refusal = [](const std::vector<LocalWorker>& workers, const v1::DeviceList& gpus) {
    const auto chosen = DevicesOfKinds("one_gpu.yaml", workers, gpus);
    CHECK(absl::IsFailedPrecondition(chosen.status()));
    return std::string(chosen.status().message());
  };
  CHECK(refusal({Gpu("RTX4090")}, Gpus({})) ==
        "one_gpu.yaml describes 1 RTX4090; the workers of this machine are CPUs (libcuda.so.1 is "
        "not there): give --devices, such as --devices cpu");
  CHECK_THAT(refusal({Gpu("RTX4090"), Gpu("RTX4090")}, Gpus({"RTX4090", "L4"})),
             Contains("describes 2 RTX4090; this machine has cuda:0: RTX4090; cuda:1: L4: give "
                      "--devices, one for each of its 2 devices"));
  v1::DeviceList broken = Gpus({"RTX4090"});
  broken.mutable_devices(0)->set_problem("the driver is too old");
  CHECK_THAT(refusal({Gpu("RTX4090")}, broken),
             Contains("cuda:0: RTX4090, which cannot be used: the driver is too old"));
}

TEST_CASE("what is a GPU is known from the catalogue, the description or the driver's name") {
  const tests::TemporaryFolder folder;
  folder.Write("c.yaml",
               "machines: [{name: m, devices: [{kind: V100}, {kind: a6000}, {kind: mine}, {kind: "
               "card}, {kind: NVIDIA Future 9090}, {kind: cpu}]}]\n"
               "kinds: [{name: mine, memory: 1 GiB}, {name: card, compute_capability: 8.6}]\n");
  auto workers = WorkersOfCluster(folder.path() / "c.yaml");
  REQUIRE(workers.status().message() == "");
  std::string gpus;
  for (const LocalWorker& worker : *workers) gpus += worker.is_gpu ? "g" : "-";
  CHECK(gpus == "gg-gg-");
  CHECK(NeedDevices(*workers));
  CHECK(LeaveOutUnsupported(&*workers) == std::map<std::string, int>{{"V100", 1}});
  REQUIRE(workers->size() == 5);
  CHECK(workers->front().name == "m/1");
  std::vector<LocalWorker> old = {Gpu("P40")};
  old[0].is_supported = false;
  CHECK(LeaveOutUnsupported(&old).empty());  // nothing else is there: it is refused by name
  CHECK(old.size() == 1);
  CHECK(OnCpuNotes({{.name = "m/0", .kind = "mine"},
                    {.name = "m/1", .kind = "cpu-12mib"},
                    {.name = "m/2"},
                    Gpu("L4")}) ==
        Devices{"1 worker for kind mine: on the CPU; --devices names other devices"});
  CHECK_FALSE(NeedDevices({{.name = "m/0", .kind = "mine"}, {.name = "m/1", .kind = "cpu"}}));
}

}  // namespace
}  // namespace tessera::deploy

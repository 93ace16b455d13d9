// tessera plan init, and the importer of Helix's cluster files.
#include "deploy/describe_machine.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "deploy/helix_import.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "tests/temporary_folder.h"
#include "third_party/linux/host_name.h"

namespace tessera::deploy {
namespace {

// A tree like /proc and /sys/fs/cgroup.
class Root : public tests::TemporaryFolder {
 public:
  Root() {
    Write("/proc/cpuinfo",
          "processor\t: 0\nmodel name\t: Test CPU 9000\ncpu MHz\t\t: 3000.000\n"
          "flags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\nmodel name\t: other\n");
    Write("/proc/meminfo", "MemAvailable: 67108864 kB\n");
    Write("/proc/self/cgroup", "0::/\n");
    Write("/sys/fs/cgroup/memory.max", "34359738368\n");
    Write("/sys/fs/cgroup/memory.current", "2147483648\n");
    Write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
  }
};

absl::StatusOr<scheduler::ClusterGraph> GraphOf(const std::string& text) {
  v1::Cluster cluster;
  if (absl::Status s = ReadDocument(text, "init.yaml", &cluster); !s.ok()) return s;
  return scheduler::MakeClusterGraph(cluster, *scheduler::BuiltInDevices(), "init.yaml");
}

using Catch::Contains;

}  // namespace

TEST_CASE("without GPUs the CPU is the device, with the memory its control group leaves") {
  const Root root;
  const MachineFacts facts = ReadMachineFacts(root.path(), {});
  CHECK(facts.cpu_model == "Test CPU 9000");
  CHECK(facts.cores == 1);
  CHECK(facts.memory_bytes == int64_t{30} << 30);
  const std::string text = DescribeMachine(facts);
  const auto graph = GraphOf(text);
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->devices() == 1);
  CHECK(graph->pools()[0].spec->kind == "cpu");
  CHECK(graph->pools()[0].spec->memory_bytes == Approx(30.0 * (int64_t{1} << 30)));
  CHECK(graph->pools()[0].spec->flops_per_second == Approx(3e9 * 64));
  CHECK_THAT(text, Contains("Test CPU 9000") && Contains("a guess") && Contains("# tiers:"));
}

TEST_CASE("the machine has the name that its workers give it, so that they are those described") {
  CHECK(ReadMachineFacts("", {}).host_name == HostName());  // as tessera-worker without --name
  MachineFacts facts;
  facts.cores = 2;
  facts.memory_bytes = int64_t{8} << 30;
  facts.host_name = "box-7.lab";
  const std::string text = DescribeMachine(facts);
  CHECK_THAT(text, Contains("\n- name: box-7.lab\n") && Contains("MACHINE/INDEX") &&
                       Contains("tessera-worker --name box-7.lab/0"));
  const auto graph = GraphOf(text);
  REQUIRE(graph.status().message() == "");
  CHECK(graph->machines()[0].name == "box-7.lab");
  for (const char* none : {"", "a/b", "a b", "-a", "a: b", "\xff"}) {
    INFO(none);
    facts.host_name = none;
    CHECK_THAT(DescribeMachine(facts), Contains("- name: this-machine\n"));
  }
}

TEST_CASE("cards of the worker's list are counted, and named by the catalogue") {
  const Root root;
  v1::DeviceList list;
  for (const char* kind : {"A6000", "A6000", "A100-40"}) {
    list.add_devices()->mutable_info()->set_kind(kind);
    list.mutable_devices()->rbegin()->mutable_info()->set_gpu_name("NVIDIA card");
  }
  const MachineFacts facts = ReadMachineFacts(root.path(), list);
  REQUIRE(facts.gpus.size() == 3);
  const auto graph = GraphOf(DescribeMachine(facts));
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->pools().size() == 2);
  CHECK(graph->pools()[0].spec->kind == "A6000");
  CHECK(graph->pools()[0].count == 2);
  CHECK(graph->pools()[1].spec->kind == "A100-40");
}

TEST_CASE(
    "a card that nobody knows is listed with what is missing, and refused until it is given") {
  MachineFacts facts;
  facts.gpus = {{"NVIDIA Future 9090", "NVIDIA Future 9090", int64_t{48} << 30}};
  const std::string text = DescribeMachine(facts);
  CHECK_THAT(text, Contains("memory: 48.0 GiB") && Contains("tessera profile") &&
                       Contains("# memory_bandwidth: 600 GB/s"));
  CHECK_THAT(std::string(GraphOf(text).status().message()),
             Contains("NVIDIA Future 9090") && Contains("memory_bandwidth"));
}

TEST_CASE("a card that nobody knows is described by what was measured of it") {
  const Root root;
  v1::DeviceList list;
  for (const double factor : {1.0, 0.9}) {
    v1::ListedDevice* device = list.add_devices();
    device->set_half_flops_per_second(300e12 * factor);
    v1::DeviceInfo* info = device->mutable_info();
    info->set_kind("NVIDIA Future 9090");
    info->set_gpu_name("NVIDIA Future 9090");
    info->set_memory_bytes(int64_t{48} << 30);
    info->set_memory_read_bytes_per_second(2e12 * factor);
  }
  CHECK(HasUnknownGpu(list));
  const std::string text = DescribeMachine(ReadMachineFacts(root.path(), list));
  CHECK_THAT(text, Contains("measured just now") && !Contains("tessera profile"));
  const auto graph = GraphOf(text);
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->pools().size() == 1);
  CHECK(graph->pools()[0].count == 2);
  // Of two of a kind the slower.
  CHECK(graph->pools()[0].spec->memory_bytes_per_second == Approx(1.8e12));
  CHECK(graph->pools()[0].spec->flops_per_second == Approx(270e12));
  for (v1::ListedDevice& device : *list.mutable_devices()) device.mutable_info()->set_kind("A6000");
  CHECK(!HasUnknownGpu(list));
}

TEST_CASE(
    "devices that are started are described in their order, those that share cores by parts") {
  const Root root;
  MachineFacts facts = ReadMachineFacts(root.path(), {});
  facts.cores = 8;
  std::vector<DeviceChoice> devices = {{"cpu", {}}, {"cuda:0", {}}, {"cuda-emulated", {}}};
  v1::DeviceInfo* gpu = devices[1].gpu.mutable_info();
  gpu->set_kind("A6000");
  gpu->set_gpu_name("NVIDIA RTX A6000");
  const std::string text = DescribeStarted(facts, devices);
  const auto graph = GraphOf(text);
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->pools().size() == 3);
  CHECK(graph->machines()[0].name == "local");
  CHECK(graph->pools()[0].spec->kind == "cpu");
  CHECK(graph->pools()[0].spec->flops_per_second == Approx(4 * 3e9 * 64));
  CHECK(graph->pools()[1].spec->kind == "A6000");
  CHECK(graph->pools()[2].spec->kind == "cuda-emulated");
  CHECK(graph->pools()[2].spec->flops_per_second < 0.01 * graph->pools()[0].spec->flops_per_second);
  CHECK_THAT(text, Contains("inside: {bandwidth: 4 GB/s"));
  // Cards that the catalogue knows need nothing else, unknown ones what was measured of them.
  CHECK_THAT(DescribeStarted(facts, {devices[1], devices[1]}), !Contains("kinds:"));
  gpu->set_kind("NVIDIA RTX A6000");
  gpu->set_memory_bytes(int64_t{48} << 30);
  gpu->set_memory_read_bytes_per_second(7e11);
  devices[1].gpu.set_half_flops_per_second(1e14);
  const auto measured = GraphOf(DescribeStarted(facts, {devices[1], devices[1]}));
  REQUIRE(measured.status().message() == "");
  CHECK(measured->pools()[0].spec->flops_per_second == Approx(1e14));
}

TEST_CASE("Helix's cluster files are read with their bytes per second") {
  constexpr char kIni[] =
      "# fake cluster\n[NodeNames]\ntotal_compute_nodes=3\n[ComputeNode-0]\ntype=A100\n"
      "connected_nodes=['source', 1, 2]\n[ComputeNode-1]\ntype=L4x2\n[ComputeNode-2]\ntype=T4\n"
      "[Link-source-0]\nbandwidth=14.2 * mbps\nlatency=55 * MilliSec\n"
      "[Link-0-1]\nbandwidth=1000 * mbps\nlatency=1 * MilliSec\n"
      "[Link-0-2]\nbandwidth=1000 * mbps\nlatency=1 * MilliSec\n"
      "[Link-1-2]\nbandwidth=12.5 * mbps\nlatency=50 * MilliSec\n"
      "[Link-2-1]\nbandwidth=2 * gbps\nlatency=2 * MicroSec\n";
  constexpr char kProfiles[] =
      "[L4x2]\ninbound_nic_speed = 10 * gbps\noutbound_nic_speed = 4 * gbps\n[T4]\n"
      "inbound_nic_speed = -1\n";
  const auto text = ImportHelixCluster(kIni, "helix.ini", kProfiles, "profiles.ini");
  REQUIRE(text.status().message() == "");
  const auto graph = GraphOf(*text);
  REQUIRE(graph.status().message() == "");
  CHECK(graph->devices() == 4);
  CHECK(graph->pools()[0].spec->kind == "A100-40");
  CHECK(graph->pools()[1].count == 2);
  CHECK(graph->Between(0, 1).bytes_per_second == Approx(1e9));  // not 125e6
  CHECK(graph->Between(0, 1).latency_seconds == Approx(1e-3));
  CHECK(graph->Between(1, 2).bytes_per_second == Approx(12.5e6));
  CHECK(graph->Between(2, 1).bytes_per_second == Approx(2e9));
  REQUIRE(graph->machines()[1].uplink.has_value());
  CHECK(graph->machines()[1].uplink->bytes_per_second == Approx(4e9));
  CHECK(!graph->machines()[2].uplink.has_value());
}

TEST_CASE("a Helix file with a fault is refused by line") {
  const auto reason = [](const std::string& text) {
    return std::string(ImportHelixCluster(text, "h.ini", "", "").status().message());
  };
  CHECK_THAT(reason(""), Contains("h.ini: has no [ComputeNode-0]"));
  CHECK_THAT(reason("type=T4\n"), Contains("h.ini:1: is neither [section] nor key=value"));
  CHECK_THAT(reason("[ComputeNode-0\n"), Contains("h.ini:1: the section's name has no ]"));
  CHECK_THAT(reason("[ComputeNode-0]\nx=1\n"), Contains("[ComputeNode-0]: has no type"));
  CHECK_THAT(reason("[ComputeNode-0]\ntype=T4\n[Link-0-1]\nbandwidth=1 * mbps\nlatency=1 * Sec\n"),
             Contains("[Link-0-1]: there is no [ComputeNode-1]"));
  CHECK_THAT(reason("[Link-0-1]\nbandwidth=1 * miles\nlatency=1 * Sec\n"),
             Contains("h.ini:2: \"1 * miles\""));
  CHECK_THAT(reason("[Link-0-1]\nbandwidth=0 * mbps\nlatency=1 * Sec\n"),
             Contains("h.ini:2: bandwidth must be above 0"));
}

}  // namespace tessera::deploy

#include "scheduler/input/runtime_reserve.h"

#include <catch2/catch.hpp>
#include <initializer_list>

namespace tessera::scheduler {
namespace {

v1::Cluster ClusterOf(std::initializer_list<const char*> kinds) {
  v1::Cluster cluster;
  v1::Machine* machine = cluster.add_machines();
  for (const char* kind : kinds) machine->add_devices()->set_kind(kind);
  return cluster;
}

}  // namespace

TEST_CASE("nothing is reserved where all devices are CPUs, else 1 GiB on each") {
  CHECK(RuntimeReserveBytes(ClusterOf({"cpu", "CPU-12MiB"})) == 0);
  CHECK(RuntimeReserveBytes(ClusterOf({"cuda-emulated", "cpu"})) == 0);
  CHECK(RuntimeReserveBytes(ClusterOf({"cpu", "A6000"})) == kUsualRuntimeReserveBytes);
  CHECK(RuntimeReserveBytes(v1::Cluster()) == kUsualRuntimeReserveBytes);
  CHECK_FALSE(IsCpuKind("cpuless"));
  CHECK_FALSE(IsCpuKind("my-cpu"));
}

}  // namespace tessera::scheduler

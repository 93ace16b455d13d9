#include "worker/gpu_kind.h"

#include <catch2/catch.hpp>
#include <utility>

#include "scheduler/input/catalogue.h"

namespace tessera::worker {

TEST_CASE("every name of a driver leads to a kind of the catalogue, and to the right one") {
  const auto catalogue = scheduler::BuiltInDevices();
  REQUIRE(catalogue.ok());
  const std::pair<const char*, const char*> names[] = {{"NVIDIA H100 80GB HBM3", "H100-SXM"},
                                                       {"NVIDIA H100 PCIe", "H100-PCIe"},
                                                       {"NVIDIA H200", "H200-SXM"},
                                                       {"NVIDIA H20", "H20"},
                                                       {"NVIDIA B200", "B200"},
                                                       {"NVIDIA A100 80GB PCIe", "A100-80"},
                                                       {"NVIDIA A100-PCIE-40GB", "A100-40"},
                                                       {"NVIDIA A40", "A40"},
                                                       {"NVIDIA RTX A5000", "A5000"},
                                                       {"NVIDIA RTX A4000", "A4000"},
                                                       {"NVIDIA L40S", "L40S"},
                                                       {"NVIDIA L40", "L40"},
                                                       {"NVIDIA L4", "L4"},
                                                       {"NVIDIA A10", "A10"},
                                                       {"Tesla T4", "T4"},
                                                       {"Tesla V100-SXM2-16GB", "V100-16"},
                                                       {"Tesla V100-SXM2-32GB", "V100-32"},
                                                       {"NVIDIA GeForce RTX 3090 Ti", "RTX3090Ti"},
                                                       {"NVIDIA GeForce RTX 4090", "RTX4090"}};
  for (const auto& [name, kind] : names) {
    INFO(name);
    CHECK(KindOfGpu(name) == kind);
    CHECK(scheduler::FindKind(*catalogue, kind) != nullptr);
  }
  CHECK(KindOfGpu("NVIDIA RTX 4090D") == "NVIDIA RTX 4090D");
  CHECK(KindOfGpu("NVIDIA A10G") == "A10G");
}

TEST_CASE("cards that the catalogue does not know, and slices, keep the driver's name") {
  CHECK(KindOfGpu("NVIDIA Future 9090") == "NVIDIA Future 9090");
  CHECK(KindOfGpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb") == "NVIDIA A100-SXM4-40GB MIG 3g.20gb");
}

}  // namespace tessera::worker

#include "worker/devices/cuda/gpu_kind.h"

#include <catch2/catch.hpp>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "scheduler/input/catalogue.h"

namespace tessera::worker {

TEST_CASE("every name of a driver leads to a kind of the catalogue, and to the right one") {
  const auto catalogue = scheduler::BuiltInDevices();
  REQUIRE(catalogue.ok());
  struct Reported {
    const char* name;
    int mib;
    const char* kind;
  };
  const Reported reported[] = {
      {"NVIDIA H100 80GB HBM3", 81559, "H100-SXM"},
      {"NVIDIA H100 PCIe", 81559, "H100-PCIe"},
      {"NVIDIA H100 NVL", 95830, "H100-NVL"},
      {"NVIDIA H200", 143771, "H200-SXM"},
      {"NVIDIA H200 NVL", 143771, "H200-NVL"},
      {"NVIDIA H20", 97871, "H20"},
      {"NVIDIA B200", 183359, "B200"},
      {"NVIDIA B300 SXM6 AC", 275040, "B300"},
      {"NVIDIA GB10", 122570, "GB10"},
      {"NVIDIA A100 80GB PCIe", 81920, "A100-80"},
      {"NVIDIA A100-SXM4-80GB", 81920, "A100-80"},
      {"A100-SXM-80GB", 81252, "A100-80"},
      {"NVIDIA A100-PCIE-40GB", 40960, "A100-40"},
      {"NVIDIA A40", 46068, "A40"},
      {"NVIDIA RTX A6000", 49140, "A6000"},
      {"NVIDIA RTX A5000", 24564, "A5000"},
      {"NVIDIA RTX A4000", 16376, "A4000"},
      {"NVIDIA L40S", 46068, "L40S"},
      {"NVIDIA L40", 46068, "L40"},
      {"NVIDIA L4", 23034, "L4"},
      {"NVIDIA A10", 23028, "A10"},
      {"NVIDIA A10G", 23028, "A10G"},
      {"NVIDIA A16", 15356, "A16"},
      {"NVIDIA A2", 15356, "A2"},
      {"Tesla T4", 15360, "T4"},
      {"Tesla V100-SXM2-16GB", 16160, "V100-16"},
      {"Tesla V100-SXM2-32GB", 32510, "V100-32"},
      {"Tesla V100-DGXS-32GB", 32478, "V100-32"},
      {"Tesla P100-PCIE-16GB", 16280, "P100"},
      {"Tesla P40", 24576, "P40"},
      {"NVIDIA GeForce RTX 2080 Ti", 11264, "RTX2080Ti"},
      {"NVIDIA GeForce RTX 2060", 6144, "RTX2060"},
      {"NVIDIA GeForce RTX 2060", 12288, "RTX2060-12"},
      {"NVIDIA GeForce RTX 2060 SUPER", 8192, "RTX2060Super"},
      {"NVIDIA GeForce RTX 2070", 8192, "RTX2070"},
      {"NVIDIA GeForce RTX 2070 SUPER", 8192, "RTX2070Super"},
      {"NVIDIA GeForce RTX 2080", 8192, "RTX2080"},
      {"NVIDIA GeForce RTX 2080 SUPER", 8192, "RTX2080Super"},
      {"NVIDIA GeForce RTX 2080 Ti", 22528, "RTX2080Ti-22"},
      {"NVIDIA TITAN RTX", 24576, "TITANRTX"},
      {"Quadro RTX 4000", 8192, "QuadroRTX4000"},
      {"Quadro RTX 5000", 16384, "QuadroRTX5000"},
      {"Quadro RTX 6000", 24576, "QuadroRTX6000"},
      {"Quadro RTX 8000", 49152, "QuadroRTX8000"},
      {"NVIDIA GeForce RTX 3050", 8192, "RTX3050"},
      {"NVIDIA GeForce RTX 3050", 6144, "RTX3050-6"},
      {"NVIDIA GeForce RTX 3070 Ti", 8192, "RTX3070Ti"},
      {"NVIDIA GeForce RTX 4060", 8188, "RTX4060"},
      {"NVIDIA GeForce RTX 4060 Ti", 8188, "RTX4060Ti-8"},
      {"NVIDIA GeForce RTX 4070", 12282, "RTX4070"},
      {"NVIDIA GeForce RTX 4070 SUPER", 12282, "RTX4070Super"},
      {"NVIDIA GeForce RTX 4070 Ti", 12282, "RTX4070Ti"},
      {"NVIDIA GeForce RTX 4080", 16376, "RTX4080"},
      {"NVIDIA GeForce RTX 4080 SUPER", 16376, "RTX4080Super"},
      {"NVIDIA GeForce RTX 4090 D", 24564, "RTX4090D"},
      {"NVIDIA GeForce RTX 4090", 49140, "RTX4090-48"},
      {"NVIDIA GeForce RTX 5050", 8151, "RTX5050"},
      {"NVIDIA GeForce RTX 5060", 8151, "RTX5060"},
      {"NVIDIA GeForce RTX 5070", 12227, "RTX5070"},
      {"NVIDIA RTX A2000 12GB", 12282, "A2000"},
      {"NVIDIA RTX A2000", 6138, "A2000-6"},
      {"NVIDIA RTX A4500", 20470, "A4500"},
      {"NVIDIA RTX A5500", 24564, "A5500"},
      {"NVIDIA RTX 2000 Ada Generation", 16380, "RTX2000Ada"},
      {"NVIDIA RTX 4000 SFF Ada Generation", 20475, "RTX4000SFFAda"},
      {"NVIDIA RTX 4000 Ada Generation", 20475, "RTX4000Ada"},
      {"NVIDIA RTX 4500 Ada Generation", 24570, "RTX4500Ada"},
      {"NVIDIA RTX 5000 Ada Generation", 32760, "RTX5000Ada"},
      {"NVIDIA RTX PRO 2000 Blackwell", 16311, "RTXPRO2000"},
      {"NVIDIA RTX PRO 4000 Blackwell", 24467, "RTXPRO4000"},
      {"NVIDIA RTX PRO 4500 Blackwell", 32623, "RTXPRO4500"},
      {"NVIDIA RTX PRO 5000 Blackwell", 48935, "RTXPRO5000"},
      {"NVIDIA RTX PRO 5000 Blackwell", 73415, "RTXPRO5000-72"},
      {"NVIDIA RTX PRO 5000 72GB Blackwell", 73415, "RTXPRO5000-72"},
      {"NVIDIA GeForce RTX 3060", 12288, "RTX3060"},
      {"NVIDIA GeForce RTX 3060", 8192, "RTX3060-8"},
      {"NVIDIA GeForce RTX 3060 Ti", 8192, "RTX3060Ti"},
      {"NVIDIA GeForce RTX 3070", 8192, "RTX3070"},
      {"NVIDIA GeForce RTX 3080", 10240, "RTX3080"},
      {"NVIDIA GeForce RTX 3080", 12288, "RTX3080-12"},
      {"NVIDIA GeForce RTX 3080", 20480, "RTX3080-20"},
      {"NVIDIA GeForce RTX 3080", 10005, "RTX3080"},
      {"NVIDIA GeForce RTX 3080 Ti", 12288, "RTX3080Ti"},
      {"NVIDIA GeForce RTX 3090", 24576, "RTX3090"},
      {"NVIDIA GeForce RTX 3090 Ti", 24564, "RTX3090Ti"},
      {"NVIDIA GeForce RTX 4060 Ti", 16380, "RTX4060Ti-16"},
      {"NVIDIA GeForce RTX 4070 Ti SUPER", 16376, "RTX4070TiSuper"},
      {"NVIDIA GeForce RTX 4090", 24564, "RTX4090"},
      {"NVIDIA GeForce RTX 5060 Ti", 16311, "RTX5060Ti"},
      {"NVIDIA GeForce RTX 5060 Ti", 8151, "RTX5060Ti-8"},
      {"NVIDIA GeForce RTX 5070 Ti", 16303, "RTX5070Ti"},
      {"NVIDIA GeForce RTX 5080", 16303, "RTX5080"},
      {"NVIDIA GeForce RTX 5090", 32607, "RTX5090"},
      {"NVIDIA RTX 6000 Ada Generation", 49140, "RTX6000Ada"},
      {"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, "RTXPRO6000"},
      {"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 97887, "RTXPRO6000-MaxQ"},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "RTXPRO6000-Server"}};
  for (const Reported& gpu : reported) {
    INFO(gpu.name << " " << gpu.mib);
    CHECK(KindOfGpu(gpu.name, int64_t{gpu.mib} << 20) == gpu.kind);
    CHECK(scheduler::FindKind(*catalogue, gpu.kind) != nullptr);
  }
}

TEST_CASE("a workstation's card is known with ECC, which takes memory from it") {
  for (const auto& [name, mib, kind] :
       std::initializer_list<std::tuple<const char*, int64_t, const char*>>{
           {"Quadro RTX 5000", 15125, "QuadroRTX5000"},
           {"Quadro RTX 5000", 14910, "QuadroRTX5000"},
           {"NVIDIA RTX A4500", 18400, "A4500"},
           {"NVIDIA RTX 4000 Ada Generation", 18400, "RTX4000Ada"},
           {"NVIDIA RTX PRO 5000 Blackwell", 44800, "RTXPRO5000"},
           {"NVIDIA RTX PRO 5000 Blackwell", 67200, "RTXPRO5000-72"}}) {
    INFO(name << " " << mib);
    CHECK(KindOfGpu(name, mib << 20) == kind);
  }
}

TEST_CASE("a card that differs in its last word or in its memory is another card") {
  for (const auto& [name, gib] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"NVIDIA RTX 4090D", 24},
           {"NVIDIA GeForce RTX 4090 Laptop GPU", 16},
           {"NVIDIA GeForce RTX 3080 Laptop GPU", 8},
           {"NVIDIA GeForce RTX 4070 Laptop GPU", 8},
           {"NVIDIA GeForce RTX 5070 Laptop GPU", 8},
           {"NVIDIA GeForce RTX 4080", 12},
           {"NVIDIA RTX 5000 Ada Generation Laptop GPU", 16},
           {"Quadro RTX 5000 with Max-Q Design", 16},
           {"NVIDIA RTX PRO 4000 Blackwell SFF Edition", 24},
           {"NVIDIA RTX A5000 Laptop GPU", 16},
           {"NVIDIA GB200", 184}}) {
    INFO(name);
    CHECK(KindOfGpu(name, gib << 30) == name);
  }
}

TEST_CASE("cards that the catalogue does not know, and slices, keep the driver's name") {
  CHECK(KindOfGpu("NVIDIA Future 9090", int64_t{24} << 30) == "NVIDIA Future 9090");
  CHECK(KindOfGpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb", int64_t{20} << 30) ==
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb");
}

}  // namespace tessera::worker

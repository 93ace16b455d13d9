#include "worker/devices/cuda/gpu_kind.h"

#include <array>
#include <cctype>

namespace tessera::worker {
namespace {

struct KnownGpu {
  std::string_view pattern;  // words of the driver's name
  std::string_view kind;
  int gib = 0;  // as the card is sold; 0: the name says enough
};

// The more specific first. Nothing follows the names of cards for desktops and workstations, which
// differ from others by a last word: "RTX 3070 Ti" is no "RTX 3070".
constexpr std::array<KnownGpu, 93> kGpus = {
    {{"H100 NVL", "H100-NVL"},
     {"H100 PCIe", "H100-PCIe"},
     {"H100", "H100-SXM"},
     {"H200 NVL", "H200-NVL"},
     {"H200", "H200-SXM"},
     {"H20", "H20"},
     {"B200", "B200"},
     {"B300", "B300"},
     {"GB10", "GB10"},
     {"A100", "A100-80", 80},
     {"A100", "A100-40", 40},
     {"V100", "V100-32", 32},
     {"V100", "V100-16", 16},
     {"P100", "P100", 16},
     {"Tesla P40", "P40"},
     {"RTX PRO 6000 Blackwell Workstation Edition", "RTXPRO6000"},
     {"RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTXPRO6000-MaxQ"},
     {"RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000-Server"},
     {"RTX 6000 Ada Generation", "RTX6000Ada"},
     {"RTX A6000", "A6000"},
     {"RTX A5000", "A5000"},
     {"RTX A4000", "A4000"},
     {"L40S", "L40S"},
     {"L40", "L40"},
     {"L4", "L4"},
     {"A40", "A40"},
     {"A10G", "A10G"},
     {"A10", "A10"},
     {"A16", "A16"},
     {"A2", "A2"},
     {"Tesla T4", "T4"},
     {"TITAN RTX", "TITANRTX"},
     {"RTX 4000", "QuadroRTX4000"},
     {"RTX 5000", "QuadroRTX5000"},
     {"RTX 6000", "QuadroRTX6000"},
     {"RTX 8000", "QuadroRTX8000"},
     {"RTX A2000 12GB", "A2000"},
     {"RTX A2000", "A2000-6"},
     {"RTX A4500", "A4500"},
     {"RTX A5500", "A5500"},
     {"RTX 2000 Ada Generation", "RTX2000Ada"},
     {"RTX 4000 SFF Ada Generation", "RTX4000SFFAda"},
     {"RTX 4000 Ada Generation", "RTX4000Ada"},
     {"RTX 4500 Ada Generation", "RTX4500Ada"},
     {"RTX 5000 Ada Generation", "RTX5000Ada"},
     {"RTX PRO 2000 Blackwell", "RTXPRO2000"},
     {"RTX PRO 4000 Blackwell", "RTXPRO4000"},
     {"RTX PRO 4500 Blackwell", "RTXPRO4500"},
     {"RTX PRO 5000 Blackwell", "RTXPRO5000", 48},
     {"RTX PRO 5000 Blackwell", "RTXPRO5000-72", 72},
     {"RTX PRO 5000 72GB Blackwell", "RTXPRO5000-72", 72},
     {"RTX 2060", "RTX2060", 6},
     {"RTX 2060", "RTX2060-12", 12},
     {"RTX 2060 SUPER", "RTX2060Super", 8},
     {"RTX 2070", "RTX2070", 8},
     {"RTX 2070 SUPER", "RTX2070Super", 8},
     {"RTX 2080", "RTX2080", 8},
     {"RTX 2080 SUPER", "RTX2080Super", 8},
     {"RTX 2080 Ti", "RTX2080Ti", 11},
     {"RTX 2080 Ti", "RTX2080Ti-22", 22},
     {"RTX 3050", "RTX3050", 8},
     {"RTX 3050", "RTX3050-6", 6},
     {"RTX 3060", "RTX3060", 12},
     {"RTX 3060", "RTX3060-8", 8},
     {"RTX 3060 Ti", "RTX3060Ti"},
     {"RTX 3070", "RTX3070", 8},
     {"RTX 3070 Ti", "RTX3070Ti", 8},
     {"RTX 3080", "RTX3080", 10},
     {"RTX 3080", "RTX3080-12", 12},
     {"RTX 3080", "RTX3080-20", 20},
     {"RTX 3080 Ti", "RTX3080Ti", 12},
     {"RTX 3090", "RTX3090"},
     {"RTX 3090 Ti", "RTX3090Ti"},
     {"RTX 4060", "RTX4060", 8},
     {"RTX 4060 Ti", "RTX4060Ti-16", 16},
     {"RTX 4060 Ti", "RTX4060Ti-8", 8},
     {"RTX 4070", "RTX4070", 12},
     {"RTX 4070 SUPER", "RTX4070Super", 12},
     {"RTX 4070 Ti", "RTX4070Ti", 12},
     {"RTX 4070 Ti SUPER", "RTX4070TiSuper"},
     {"RTX 4080", "RTX4080", 16},
     {"RTX 4080 SUPER", "RTX4080Super", 16},
     {"RTX 4090", "RTX4090", 24},
     {"RTX 4090", "RTX4090-48", 48},
     {"RTX 4090 D", "RTX4090D", 24},
     {"RTX 5050", "RTX5050", 8},
     {"RTX 5060", "RTX5060", 8},
     {"RTX 5060 Ti", "RTX5060Ti", 16},
     {"RTX 5060 Ti", "RTX5060Ti-8", 8},
     {"RTX 5070", "RTX5070", 12},
     {"RTX 5070 Ti", "RTX5070Ti"},
     {"RTX 5080", "RTX5080"},
     {"RTX 5090", "RTX5090", 32}}};

bool Names(std::string_view name, std::string_view pattern) {
  const size_t at = name.find(pattern);
  if (at == std::string_view::npos) return false;
  const size_t end = at + pattern.size();
  const bool begins = at == 0 || name[at - 1] == ' ';
  if (!begins || end == name.size()) return begins;
  return !pattern.starts_with("RTX ") && std::isalnum(static_cast<unsigned char>(name[end])) == 0;
}

// Drivers report less than a card is sold with, with ECC a tenth less.
bool Holds(int64_t memory_bytes, int gib) {
  const double part = static_cast<double>(memory_bytes) / (gib * 0x1p30);
  return gib == 0 || (part > 0.90 && part < 1.03);
}

}  // namespace

std::string KindOfGpu(std::string_view name, int64_t memory_bytes) {
  if (name.find(" MIG ") != std::string_view::npos) return std::string(name);
  for (const KnownGpu& gpu : kGpus) {
    if (Names(name, gpu.pattern) && Holds(memory_bytes, gpu.gib)) return std::string(gpu.kind);
  }
  return std::string(name);
}

}  // namespace tessera::worker

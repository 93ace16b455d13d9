#include "worker/gpu_kind.h"

#include <array>
#include <cctype>
#include <utility>

namespace tessera::worker {

std::string KindOfGpu(std::string_view name) {
  // What drivers call cards, the more specific first; memory decides where the name does not.
  static constexpr std::array<std::pair<const char*, const char*>, 26> kNames = {
      {{"H100 PCIe", "H100-PCIe"},
       {"H100", "H100-SXM"},
       {"H200", "H200-SXM"},
       {"H20", "H20"},
       {"B200", "B200"},
       {"A100-SXM4-80GB", "A100-80"},
       {"A100-PCIE-80GB", "A100-80"},
       {"A100 80GB", "A100-80"},
       {"A100", "A100-40"},
       {"V100-SXM2-32GB", "V100-32"},
       {"V100-SXM3-32GB", "V100-32"},
       {"V100-PCIE-32GB", "V100-32"},
       {"V100", "V100-16"},
       {"RTX A6000", "A6000"},
       {"RTX A5000", "A5000"},
       {"RTX A4000", "A4000"},
       {"L40S", "L40S"},
       {"L40", "L40"},
       {"L4", "L4"},
       {"A40", "A40"},
       {"A10G", "A10G"},
       {"A10", "A10"},
       {"Tesla T4", "T4"},
       {"RTX 3090 Ti", "RTX3090Ti"},
       {"RTX 3090", "RTX3090"},
       {"RTX 4090", "RTX4090"}}};
  if (name.find(" MIG ") != std::string_view::npos) return std::string(name);
  for (const auto& [pattern, kind] : kNames) {
    const size_t at = name.find(pattern);
    if (at == std::string_view::npos) continue;
    const size_t end = at + std::string_view(pattern).size();
    const bool begins = at == 0 || name[at - 1] == ' ';
    const bool ends =
        end == name.size() || std::isalnum(static_cast<unsigned char>(name[end])) == 0;
    if (begins && ends) return kind;
  }
  return std::string(name);
}

}  // namespace tessera::worker

#include "third_party/linux/pci_device.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "third_party/linux/cpu_share.h"

namespace tessera {

std::vector<int> CoresNearPciDevice(std::string_view bus_id, const std::string& root) {
  std::string folder(bus_id);
  std::transform(folder.begin(), folder.end(), folder.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (folder.empty() || folder.find('/') != std::string::npos) return {};
  std::ifstream file(root + "/sys/bus/pci/devices/" + folder + "/local_cpulist");
  std::string line;
  if (!std::getline(file, line)) return {};
  const auto cores = ParseCpuList(line);
  return cores.ok() ? *cores : std::vector<int>();
}

}  // namespace tessera

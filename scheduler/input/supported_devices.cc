#include "scheduler/input/supported_devices.h"

#include <utility>
#include <vector>

#include "scheduler/input/catalogue.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {

std::string CountedKinds(const std::map<std::string, int>& devices) {
  std::string text;
  size_t left = devices.size();
  for (const auto& [kind, count] : devices) {
    const char* before = text.empty() ? "" : left == 1 ? " and " : ", ";
    text += StrCat(before, count, " ", kind);
    --left;
  }
  return text;
}

absl::StatusOr<SupportedPart> SupportedDevices(ClusterGraph graph, const v1::Cluster& cluster,
                                               const v1::DeviceCatalogue& catalogue,
                                               std::string_view file, std::string_view flag) {
  SupportedPart part;
  std::vector<int> counts;
  for (const DevicePool& pool : graph.pools()) {
    const auto kind = DescribedKind(cluster, catalogue, pool.spec->kind);
    const bool runs = !kind || HasWorker(*kind);
    counts.push_back(runs ? pool.count : 0);
    if (!runs) part.left_out[pool.spec->kind] += pool.count;
  }
  std::vector<int> kept;
  part.graph = part.left_out.empty() ? std::move(graph) : graph.Part(counts, &kept);
  if (!part.graph.pools().empty()) return part;
  return absl::InvalidArgumentError(
      StrCat(file, ": no worker runs on any of its devices (", CountedKinds(part.left_out),
             "): workers run on CPUs, and on NVIDIA GPUs from compute capability ",
             kMinNvidiaCapability, " on; ", flag, " plans for them all the same"));
}

}  // namespace tessera::scheduler

#include "worker/offered_links.h"

namespace tessera::worker {

void OfferLinks(const WorkerDevice& worker, LinkHub* links, const KvLinkOptions& kv,
                SetupOptions* setup) {
  if (worker.host_reads_memory) setup->open_kv_port = OpenKvLinkPorts(kv);
  setup->join = [links](const v1::ConfigureRequest& request, int32_t kv_blocks,
                        const FormationTimes& times, const std::function<bool()>& cancelled) {
    return links->Join(request, kv_blocks, times, cancelled);
  };
}

}  // namespace tessera::worker

#include "worker/offered_links.h"

#include "kernels/collectives/group_maker.h"

namespace tessera::worker {

absl::StatusOr<std::unique_ptr<StagedKvCoder>> MakeKvCoder(const WorkerDevice& worker) {
  if (worker.device->host_reads_memory()) return nullptr;
  return StagedKvCoder::Create(worker.device.get());
}

void OfferLinks(LinkHub* links, const KvLinkOptions& kv, const KvCoder& coder,
                SetupOptions* setup) {
  setup->open_kv_port = OpenKvLinkPorts(kv);
  if (coder.stages()) setup->kv_staging_bytes = StagedKvCoder::kStagingBytes;
  setup->join = [links, maker = kernels::GroupMakerOf(*setup->device)](
                    const v1::ConfigureRequest& request, int32_t kv_blocks,
                    const FormationTimes& times, const std::function<bool()>& cancelled) {
    return links->Join(request, kv_blocks, times, cancelled, maker);
  };
}

}  // namespace tessera::worker

#include "worker/link_setup.h"

#include "kernels/collectives/group_maker.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "tls/cluster_tls.h"

namespace tessera::worker {
namespace {

absl::StatusOr<std::shared_ptr<const kernels::LinkTlsContext>> LinkTlsOf(const Certificates& own,
                                                                         bool nccl_plain) {
  return kernels::LinkTlsContext::Make({.chain = own.chain,
                                        .key = own.key,
                                        .authority = own.client_ca,
                                        .allows_plain_nccl = nccl_plain});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterTlsFiles>> ClusterTlsFiles::Open(const std::string& file,
                                                                       bool nccl_plain) {
  if (file.empty()) return nullptr;
  auto door = std::make_unique<ClusterTlsFiles>();
  auto watch = WatchClusterTls(file);
  if (!watch.ok()) return watch.status();
  auto context = LinkTlsOf(*(*watch)->now(), nccl_plain);
  if (!context.ok()) return context.status();
  door->links_ = std::make_shared<kernels::LinkTlsSource>(*std::move(context));
  (*watch)->OnChange(
      [links = door->links_, nccl_plain](const std::shared_ptr<const Certificates>& changed) {
        if (auto next = LinkTlsOf(*changed, nccl_plain); next.ok())
          links->Replace(*std::move(next));
      });
  door->certificates_ = *std::move(watch);
  return door;
}

absl::StatusOr<std::unique_ptr<StagedKvCoder>> MakeKvCoder(const WorkerDevice& worker) {
  if (worker.device->host_reads_memory()) return nullptr;
  return StagedKvCoder::Create(worker.device.get());
}

absl::StatusOr<std::unique_ptr<DevicePairs>> MakeDevicePairs(const WorkerDevice& worker,
                                                             std::optional<KvTransport> asked) {
  kernels::GroupMaker* maker = worker.device->group_maker();
  if (maker != nullptr && !maker->has_library()) maker = nullptr;
  if (maker == nullptr && asked == KvTransport::kNccl) {
    return absl::FailedPreconditionError(
        StrCat("--kv-transport nccl: ", worker.device->Describe(),
               ": it has no NCCL, which takes a whole GPU and the library; ask for auto, shm, unix "
               "or tcp"));
  }
  const std::string staged = worker.device->host_reads_memory()
                                 ? ""
                                 : StrCat("staged: through ", StagedKvCoder::kStagingBytes >> 20,
                                          " MiB of pinned host memory");
  if (maker != nullptr) {
    Logger("worker").info(
        "KV from and to other GPUs goes by {} where they have it too, else it is {}",
        maker->library(), staged);
    return std::make_unique<DevicePairs>(DevicePairOptions{.maker = maker});
  }
  if (!staged.empty()) Logger("worker").info("KV from and to other replicas is {}", staged);
  return nullptr;
}

void OfferLinks(LinkHub* links, const KvLinkOptions& kv, const KvCoder& coder,
                SetupOptions* setup) {
  setup->open_kv_port = OpenKvLinkPorts(kv);
  if (coder.stages()) setup->kv_staging_bytes = StagedKvCoder::kStagingBytes;
  setup->join = [links, maker = setup->device->group_maker()](
                    const v1::ConfigureRequest& request, KvBlocks kv, const FormationTimes& times,
                    const JoinWatch& watch) {
    return links->Join(request, kv, times, watch, maker);
  };
}

}  // namespace tessera::worker

// What a worker lets others do with its device's memory: share a replica with it, and send keys and
// values to it or take them from it.
//
// Thread rule: called once, from the main thread. What is borrowed must outlive every engine that
// `setup` makes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/links/link_tls.h"
#include "tls/certificates.h"
#include "worker/engine/engine_setup.h"
#include "worker/formation/link_hub.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_coder.h"
#include "worker/transfer/kv_link_port.h"
#include "worker/transfer/kv_transport.h"
#include "worker/transfer/staged_kv_coder.h"
#include "worker/worker_device.h"

namespace tessera::worker {

// What this worker's port, links and KV show where they are inside TLS.
class ClusterTlsFiles {
 public:
  // `file`: --cluster-tls; INVALID_ARGUMENT names it. Null where there is none: all is plain.
  static absl::StatusOr<std::unique_ptr<ClusterTlsFiles>> Open(const std::string& file,
                                                               bool nccl_plain);

  CertificateWatch* certificates() const { return certificates_.get(); }
  // Follows the file.
  std::shared_ptr<const kernels::LinkTlsSource> links() const { return links_; }

 private:
  std::shared_ptr<kernels::LinkTlsSource> links_;
  std::unique_ptr<CertificateWatch> certificates_;  // changes `links_` until its end
};

// What reads and writes the device's pool for links, where the host does not; null: HostKvCoder
// does. Before anything else takes the device's memory.
absl::StatusOr<std::unique_ptr<StagedKvCoder>> MakeKvCoder(const WorkerDevice& worker);

// The device's pairs with those of other workers, and a line in the log on how KV goes; null: it
// joins none. `asked` as in KvOutboxOptions: FailedPrecondition where that needs them.
absl::StatusOr<std::unique_ptr<DevicePairs>> MakeDevicePairs(const WorkerDevice& worker,
                                                             std::optional<KvTransport> asked);

// `coder` is what inbox and outbox were given; `setup` has its device already.
void OfferLinks(LinkHub* links, const KvLinkOptions& kv, const KvCoder& coder, SetupOptions* setup);

}  // namespace tessera::worker

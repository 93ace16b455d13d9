// Moves an engine's KV over links: KvMover by means of the worker's inbox and outbox.
//
// Thread rule: as KvMover. Ownership: borrows inbox and outbox, which serve one engine after the
// other; keeps `owner`, whose memory the pool is, while anything is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvcache/kv_layout.h"
#include "worker/engine/kv_mover.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::worker {

struct KvLinkMoverOptions {
  KvInbox* inbox = nullptr;
  KvOutbox* outbox = nullptr;
  std::vector<std::string> addresses;  // of the inbox, as other workers are given them
  uint64_t incarnation = 0;            // of this worker
};

class KvLinkMover final : public KvMover {
 public:
  KvLinkMover(KvLinkMoverOptions options, const kvcache::KvPool& pool,
              std::shared_ptr<const void> owner)
      : options_(std::move(options)), pool_(pool), owner_(std::move(owner)) {}
  ~KvLinkMover() override { options_.outbox->Drop(this); }

  void SetListener(KvMoverListener* listener) override { listener_ = listener; }
  v1::KvTarget Expect(const KvPlace& place, double lease_seconds) override;
  void Forget(const std::string& ticket) override { options_.inbox->Forget(ticket); }
  void Send(const v1::KvTarget& target, const KvPlace& place) override;

 private:
  const KvLinkMoverOptions options_;
  const kvcache::KvPool pool_;
  const std::shared_ptr<const void> owner_;
  KvMoverListener* listener_ = nullptr;
};

}  // namespace tessera::worker

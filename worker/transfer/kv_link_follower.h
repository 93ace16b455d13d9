// The KV part of a worker that is not its replica's leader: what the leader's notes say, done on
// the worker's own port, and what came of it, answered.
//
// Thread rule: as KvMemberPart.
#pragma once

#include <memory>

#include "worker/engine/kv_mover.h"
#include "worker/transfer/kv_link_port.h"

namespace tessera::worker {

class KvLinkFollower final : public KvMemberPart, private KvLinkPort::Listener {
 public:
  KvLinkFollower(std::shared_ptr<KvLinkPort> port, KvPort::Answer answer)
      : port_(std::move(port)), answer_(std::move(answer)) {
    port_->SetListener(this);
  }
  ~KvLinkFollower() override { port_->SetListener(nullptr); }

  absl::Status Take(const v1::KvNote& note) override;

 private:
  void OnPartArrived(const KvKey& key, const absl::Status& status) override;
  void OnPartSent(const KvKey& key, const absl::Status& status,
                  const v1::KvTransfer& transfer) override;

  const std::shared_ptr<KvLinkPort> port_;
  const KvPort::Answer answer_;
};

}  // namespace tessera::worker

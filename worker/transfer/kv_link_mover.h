// Moves the KV of a whole replica over links, as its leader: KvMover. Each worker's part goes over
// that worker's own port; the leader tells the others by notes and adds up what came of all.
//
// Thread rule: as KvMover.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "worker/engine/kv_mover.h"
#include "worker/transfer/kv_link_port.h"

namespace tessera::worker {

class KvLinkMover final : public KvMover, private KvLinkPort::Listener {
 public:
  KvLinkMover(std::shared_ptr<KvLinkPort> port, KvPort::Replica replica);
  ~KvLinkMover() override;

  void SetListener(KvMoverListener* listener) override { listener_ = listener; }
  void Expect(const KvPlace& place, const std::vector<kvcache::KvShare>& senders,
              double lease_seconds) override;
  void Forget(const KvKey& key) override;
  void Send(const KvKey& key, const v1::KvTarget& target) override;
  void Drop(const KvKey& key) override;

 private:
  // A prompt whose KV comes.
  struct Coming {
    v1::KvTarget target;
    std::map<int, std::vector<int>> routes;  // of the target, by receiver
    std::set<int> unready;                   // receivers that have not answered
    std::set<int> missing;                   // receivers whose part has not arrived
  };
  // A prompt whose KV goes.
  struct Going {
    std::set<int> senders;
    std::set<int> missing;  // of these, whose part is not there
    v1::KvTransfer transfer;
  };

  // The ways of keys and values, or of states, whose key groups are their kv heads.
  absl::StatusOr<std::vector<kvcache::KvRoute>> Routes(const std::vector<kvcache::KvShare>& senders,
                                                       bool states) const;
  void OnNote(int peer, const v1::KvNote& note);
  void OnPartArrived(const KvKey& key, const absl::Status& status) override {
    OnArrived(port_->self(), key, status);
  }
  void OnPartSent(const KvKey& key, const absl::Status& status,
                  const v1::KvTransfer& transfer) override {
    OnSent(port_->self(), key, status, transfer);
  }
  void OnReady(int receiver, const KvKey& key, const absl::StatusOr<v1::KvRoomReady>& ready);
  void OnArrived(int receiver, const KvKey& key, const absl::Status& status);
  void OnSent(int sender, const KvKey& key, const absl::Status& status,
              const v1::KvTransfer& transfer);

  const std::shared_ptr<KvLinkPort> port_;
  const KvPort::Replica replica_;
  KvMoverListener* listener_ = nullptr;

  std::mutex mutex_;
  std::map<KvKey, Coming> coming_;  // until all of it is there, or it is forgotten
  std::map<KvKey, Going> going_;    // until all of it is there, or it is dropped
};

}  // namespace tessera::worker

// KV of one worker's pool over links: KvPort by means of the worker's inbox and outbox.
//
// What a worker does for its replica is the same whatever its part: it lets KV come into rooms, in
// parts that each have a connection, and it sends its part of prompts, as its steps push it
// (KvSender). A KvLinkMover does so for the leader and has the other workers do it too
// (worker/transfer/kv_link_mover.h), a KvLinkFollower at the leader's word.
//
// Thread rule: any thread, but for KvSender's rule. Ownership: borrows inbox and outbox, which
// serve one port after the other; shares what keeps the pool's memory. Destroyed, it has ended what
// was under way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvcache/kv_layout.h"
#include "worker/engine/kv_mover.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::worker {

struct KvLinkOptions {
  KvInbox* inbox = nullptr;
  KvOutbox* outbox = nullptr;
  std::vector<std::string> addresses;  // of the inbox, as other workers are given them
  uint64_t incarnation = 0;            // of this worker
};

class KvLinkPort final : public KvPort,
                         public KvSender,
                         public std::enable_shared_from_this<KvLinkPort> {
 public:
  // Hears of this worker's part. On threads of inbox and outbox.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnPartArrived(const KvKey& key, const absl::Status& status) = 0;
    virtual void OnPartSent(const KvKey& key, const absl::Status& status,
                            const v1::KvTransfer& transfer) = 0;
  };

  KvLinkPort(KvLinkOptions options, const KvPortPools& pools, int self,
             std::shared_ptr<const void> owner);
  ~KvLinkPort() override;

  // KvPort.
  KvSender* sender() override { return this; }
  std::unique_ptr<KvMover> Lead(Replica replica) override;
  std::unique_ptr<KvMemberPart> Follow(Answer answer) override;

  // KvSender.
  void Begin(std::span<const KvPush> pushes, const StepArrays& arrays) override;
  void OnLayerWritten(int64_t index) override;
  void OnStatesSaved() override;

  int self() const { return self_; }
  const KvPortPools& pools() const { return pools_; }
  // Nobody hears anything any more when null has been set.
  void SetListener(Listener* listener);
  // Lets KV come; the answer has a ticket for each part. InvalidArgument: a part or block that this
  // pool has not, or a room of that key is open.
  absl::StatusOr<v1::KvRoomReady> OpenRoom(const KvKey& key, const v1::KvRoom& room);
  // Nothing is written there when this returns.
  void CloseRoom(const KvKey& key);
  // Ends what is sent for a submission; nothing is read when this returns.
  void Drop(const KvKey& key);

 private:
  struct ParcelOfLayers {
    KvOutbox::ParcelId id = 0;
    IndexRange layers;
    bool states = false;
  };
  struct Room {
    std::vector<std::string> tickets;
    size_t missing = 0;  // parts; 0: one has failed
  };
  struct Shipment {
    std::vector<ParcelOfLayers> parcels;
    size_t missing = 0;  // parcels; 0: one has failed
    double began_seconds = 0;
    v1::KvTransfer transfer;
  };
  struct StepPush {  // of the step that runs
    std::vector<ParcelOfLayers> parcels;
    std::shared_ptr<const std::vector<int32_t>> table, window_table;
    int64_t end = 0;
    int32_t exchange = -1;
  };

  absl::Status CheckPart(const v1::KvShare& part) const;
  absl::Status CheckRoom(const v1::KvRoom& room) const;
  absl::Status CheckWindow(const v1::KvRoom& room) const;
  // What this worker sends of it; empty: nothing.
  std::vector<ParcelOfLayers> OpenShipment(const KvKey& key, const KvPush& push);
  void OnPart(const KvKey& key, const absl::Status& status);
  void OnParcel(const KvKey& key, const KvParcelOutcome& outcome);
  void Tell(const std::function<void(Listener&)>& what);

  const KvLinkOptions options_;
  const KvPortPools pools_;
  const int self_;
  const std::shared_ptr<const void> owner_;

  std::vector<StepPush> pushes_;  // of the thread that runs steps

  std::mutex mutex_;
  std::map<KvKey, Room> rooms_;
  std::map<KvKey, Shipment> shipments_;

  std::mutex listener_mutex_;  // held while the listener is called
  Listener* listener_ = nullptr;
};

// Opens ports for whatever the worker is configured for.
KvPortOpener OpenKvLinkPorts(KvLinkOptions options);

}  // namespace tessera::worker

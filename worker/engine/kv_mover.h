// What moves KV between the replica of an engine and others: room for KV to come, and KV to send.
// worker/transfer does it over links; tests do it by hand.
//
// Submissions are named by their id and attempt (KvKey).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"
#include "worker/step/kv_push.h"

namespace tessera::worker {

using KvKey = std::pair<uint64_t, uint32_t>;  // submission and attempt

// Tokens [first, end) of a submission, in blocks that every pool of the replica has.
struct KvPlace {
  KvKey key;
  std::vector<int32_t> blocks;  // of the whole sequence
  int64_t first = 0;
  int64_t end = 0;
  v1::KvCodec codec = v1::KV_CODEC_RAW;  // in which it comes
  // For layers with a window, where these have blocks of their own: as many as `blocks`, and the
  // first token of which they are sent, at least `first`.
  std::vector<int32_t> window_blocks = {};
  int64_t window_first = 0;
  // Where its states behind `end` come to, in exchanges that every worker with states has
  // (worker/step/state_exchange.h); -1: layers keep none.
  int32_t exchange = -1;
};

// Thread rule: any thread, also from inside a call of the mover: it only takes notes.
class KvMoverListener {
 public:
  virtual ~KvMoverListener() = default;
  // Every worker of the replica lets the KV come; where to. An error: nothing will come.
  virtual void OnKvExpected(const KvKey& key, absl::StatusOr<v1::KvTarget> target) = 0;
  // OK: all of it is in the blocks. Else it will never be whole: Forget it before they change.
  virtual void OnKvArrived(const KvKey& key, const absl::Status& status) = 0;
  // OK: the receivers have all of it. Else nothing is sent any more.
  virtual void OnKvSent(const KvKey& key, const absl::Status& status,
                        const v1::KvTransfer& transfer) = 0;
};

// Thread rule: called by the engine's thread; no call waits for a peer.
class KvMover {
 public:
  // Ends what is under way; there is no outcome any more.
  virtual ~KvMover() = default;
  // Before anything else. The listener outlives the mover.
  virtual void SetListener(KvMoverListener* listener) = 0;

  // Lets KV come from a replica whose workers hold `senders`: OnKvExpected; where that is OK, then
  // OnKvArrived.
  virtual void Expect(const KvPlace& place, const std::vector<kvcache::KvShare>& senders,
                      double lease_seconds) = 0;
  // Nothing is written there by what the replica's workers run from now on, and there is no outcome
  // any more.
  virtual void Forget(const KvKey& key) = 0;

  // Steps with pushes for the submission follow, and then OnKvSent.
  virtual void Send(const KvKey& key, const v1::KvTarget& target) = 0;
  // Its blocks are about to change: nothing reads them for it when later steps run, and there is no
  // outcome any more. Where there was one, nothing happens.
  virtual void Drop(const KvKey& key) = 0;
};

// What a worker moves. Where some layers keep states, the layers of `kv` are those with keys and
// values alone, and those of `states` the others, each counted from the model's first one
// (kvcache/state_layout.h).
struct KvPortPools {
  KvPortPools(const kvcache::KvPool& kv) : kv(kv), first_layer(kv.share.layers.begin) {}

  bool has_states() const { return !state_layers.empty(); }
  // The layers of the model that one of the pools counts, as it counts them.
  static IndexRange Count(const std::vector<int32_t>& layers, const IndexRange& of_model) {
    const auto count = [&](int32_t layer) {
      return static_cast<int32_t>(std::lower_bound(layers.begin(), layers.end(), layer) -
                                  layers.begin());
    };
    return {count(of_model.begin), count(of_model.end)};
  }

  kvcache::KvPool kv;
  kvcache::KvPool states = {};
  // Layers of the model, ascending; both empty: `kv` has them all.
  std::vector<int32_t> kv_layers = {}, state_layers = {};
  int32_t first_layer;  // of the model, that the worker holds
};

// One worker's pool as other replicas see it: where its KV comes from and goes to, as long as the
// worker is configured. Whoever is made by it shares it.
class KvPort {
 public:
  struct Replica {
    std::vector<kvcache::KvShare> shares;  // of its workers, in the order of their peers
    KvNotes* notes = nullptr;              // to the others; null: there are none
  };
  using Answer = std::function<void(const v1::KvNote& note)>;  // called on any thread

  virtual ~KvPort() = default;
  // What the worker's steps push to; lives as long as the port.
  virtual KvSender* sender() = 0;
  // The mover of a leader.
  virtual std::unique_ptr<KvMover> Lead(Replica replica) = 0;
  // The part of another worker of a replica, whose leader hears `answer`.
  virtual std::unique_ptr<KvMemberPart> Follow(Answer answer) = 0;
};

// `self`: the worker's index in its replica's peers; `owner` keeps the pool's memory.
using KvPortOpener = std::function<std::shared_ptr<KvPort>(const KvPortPools& pools, int self,
                                                           std::shared_ptr<const void> owner)>;

}  // namespace tessera::worker

// Sends the KV of sequences to the workers that expect it (worker/transfer/kv_inbox.h).
//
// Thread rule: any thread. One thread of its own sends one shipment after the other, in the order
// of Send, and calls `done`. Every wait is bounded; a peer that takes nothing for so long fails its
// shipment.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/links/link.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"

namespace tessera::worker {

struct KvOutboxOptions {
  std::string cluster_token;  // empty: none
  uint64_t incarnation = 0;   // of this worker
  double wait_seconds = 10;   // for the peer to take a piece, and to say that all has come
};

// Tokens [target.first_token, end) of a sequence. The pool's memory stays valid, and what stands in
// the blocks stays what it is, until `done`.
struct KvShipment {
  v1::KvTarget target;
  kvcache::KvPool pool;
  std::vector<int32_t> table;  // blocks of the sequence
  int64_t end = 0;
  std::function<void(const absl::Status&)> done;  // OK: the peer has all of it
  const void* owner = nullptr;                    // for Drop
};

class KvOutbox {
 public:
  explicit KvOutbox(KvOutboxOptions options);
  // Shipments that are left fail.
  ~KvOutbox();

  void Send(KvShipment shipment);
  // Ends the shipments of `owner`; their `done` was called when this returns.
  void Drop(const void* owner);
  int64_t bytes_sent() const;

 private:
  void Loop();
  absl::Status Ship(const KvShipment& shipment);
  absl::StatusOr<std::unique_ptr<kernels::Link>> Dial(const v1::KvTarget& target) const;
  absl::Status SendPieces(const KvShipment& shipment, kernels::Link* link);

  const KvOutboxOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<KvShipment> waiting_;
  const void* owner_ = nullptr;    // of the shipment in hand
  kernels::Link* link_ = nullptr;  // likewise, once it is dialled
  bool dropped_ = false;           // the shipment in hand is to end
  int64_t bytes_sent_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::worker

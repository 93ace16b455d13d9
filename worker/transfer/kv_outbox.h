// Sends KV to the workers that expect it (worker/transfer/kv_inbox.h), while it is being computed.
//
// A parcel is what one worker sends to one other of one sequence: a connection of its own, opened
// by the parcel's ticket at once, so that the prompt's computation hides the handshake. Its KV is
// added layer by layer and leaves in pieces; the peer says when it has all. A parcel that waits for
// its peer holds up no other, up to kMaxParcelsAtOnce.
//
// Thread rule: any thread. Parcels are sent, and `done` called, on threads of the outbox. Every
// wait is bounded; a peer that takes nothing for so long fails its parcel, and so does KV that does
// not come.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link.h"
#include "kernels/links/link_tls.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_coder.h"
#include "worker/transfer/kv_transport.h"

namespace tessera::worker {

struct KvOutboxOptions {
  std::string cluster_token;                                    // empty: none
  uint64_t incarnation = 0;                                     // of this worker
  std::shared_ptr<const kernels::LinkTlsSource> tls = nullptr;  // as KvInboxOptions::tls
  double wait_seconds = 10;   // for the peer to take a piece, and to say that all has come
  double idle_seconds = 120;  // for more KV to be added
  // None: the fastest that can be had. One that is asked for and cannot be had fails parcels.
  std::optional<KvTransport> transport = std::nullopt;
  // Reads the pools; borrowed.
  KvCoder* coder = &HostKvCoder();
  // Pairs of the pools' device with devices that KV goes to; null: it goes through the hosts.
  DevicePairs* pairs = nullptr;
  // Waits, on the thread that sends a piece, for as long as it takes on a link that only a plan
  // has. Null: links are as they are.
  std::function<void(const v1::KvPiece& piece)> pace = nullptr;
};

struct KvParcelOutcome {
  absl::Status status;  // OK: the peer has all of it
  int64_t bytes = 0;    // that went over the connection, or through memory for it
  KvTransport transport = KvTransport::kTcp;
  bool staged = false;  // on this side, or on the peer's where it has all of it
};

// Tokens [first, end) of a sequence. What stands in the pool at the tokens that were added stays
// what it is until `done` or Stop.
struct KvParcel {
  v1::KvRoute route;
  kvcache::KvPool pool;
  v1::KvCodec codec = v1::KV_CODEC_RAW;
  int64_t first = 0;
  int64_t end = 0;
  std::function<void(const KvParcelOutcome&)> done;  // once, unless Stop comes first
  int64_t window_first = 0;  // in place of `first`, of layers with blocks of their own

  int64_t FirstOf(int32_t layer) const { return pool.IsWindowed(layer) ? window_first : first; }
};

class KvOutbox {
 public:
  static constexpr int kMaxParcelsAtOnce = 64;

  explicit KvOutbox(KvOutboxOptions options);
  // Parcels that are left fail.
  ~KvOutbox();

  using ParcelId = int64_t;
  ParcelId Open(KvParcel parcel);
  // The tokens before `end` of a layer of the route's part are complete. They leave as soon as they
  // fill a group of the codec, the last ones in any case. Nothing happens where the parcel has
  // ended.
  void Add(ParcelId id, int32_t layer, std::shared_ptr<const std::vector<int32_t>> table,
           int64_t end);
  // Nothing of the pool is read when this returns, and `done` is not called, or has returned.
  // Waits for no peer. Not from inside `done`.
  void Stop(ParcelId id);

  // Counts of all parcels that ended, by the peer's incarnation and transport. Pieces of
  // kernels::kTimedPayloadBytes or more are timed, from this side, their encoding included.
  std::vector<v1::LinkCounters> counters() const;

 private:
  struct Ready {
    int32_t layer = 0;
    std::shared_ptr<const std::vector<int32_t>> table;
    int64_t first = 0;
    int64_t end = 0;
  };
  struct Parcel;  // with what is left of it to send

  void Run();
  KvParcelOutcome Ship(Parcel& parcel);
  void Count(const Parcel& parcel, const KvParcelOutcome& outcome);
  absl::Status Dial(Parcel& parcel);
  absl::Status OpenChannel(Parcel& parcel);
  // Null: no device of the peer takes it.
  absl::StatusOr<std::shared_ptr<PairedDevice>> FindDevice(Parcel& parcel);
  absl::Status OpenHostChannel(Parcel& parcel) const;
  absl::Status SendAll(Parcel& parcel);
  // The next KV that was added; an error: there is none in time, or the parcel was stopped.
  absl::StatusOr<Ready> Next(Parcel& parcel);
  absl::Status SendPieces(Parcel& parcel, const Ready& ready);
  absl::Status SendPiece(Parcel& parcel, const v1::KvPiece& piece);

  const KvOutboxOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ParcelId last_id_ = 0;
  std::map<ParcelId, std::shared_ptr<Parcel>> parcels_;  // that have not ended
  std::deque<std::shared_ptr<Parcel>> waiting_;          // for a thread
  std::map<std::pair<uint64_t, KvTransport>, v1::LinkCounters> counters_;
  std::map<uint64_t, std::string> through_host_;  // why, by peer, as it was logged
  int idle_threads_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::worker

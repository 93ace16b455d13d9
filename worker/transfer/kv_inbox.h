// Where a worker takes the KV that workers of other replicas computed for it.
//
// Who is to send gets a ticket: random, single use, bound to one worker, to layers and heads, and
// to the tokens of one sequence. A connection proves the cluster token (kernels/links/handshake.h),
// shows the ticket, and sends pieces (worker/transfer/kv_channel.h). Anything else is refused by
// name and counted, and nothing of it is written. Pieces are written as they come, on the
// connection's own thread, never the engine's.
//
// Thread rule: any thread. KvPartRoom::done is called once, on a thread of the inbox, and returns
// before Forget does; unless Forget came first. Every wait is bounded: by the lease, which each
// piece extends.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/links/link_server.h"
#include "kernels/links/link_tls.h"
#include "kvcache/kv_layout.h"
#include "proto/worker.pb.h"
#include "third_party/spdlog/log_throttle.h"
#include "worker/transfer/device_pairs.h"
#include "worker/transfer/kv_channel.h"
#include "worker/transfer/kv_coder.h"
#include "worker/transfer/kv_part_writer.h"

namespace tessera::worker {

struct KvInboxOptions {
  std::vector<std::string> listen;  // as LinkHubOptions::listen
  std::string cluster_token;        // empty: none is asked for
  uint64_t incarnation = 0;         // of this worker
  // Writes the pools; borrowed.
  KvCoder* coder = &HostKvCoder();
  // The pairs of the pools' device, with devices that KV comes from; null: it comes through the
  // hosts.
  DevicePairs* pairs = nullptr;
  // TLS of connections over TCP; null: plain.
  std::shared_ptr<const kernels::LinkTlsSource> tls = nullptr;
};

// Room for a part of a sequence's KV.
struct KvPartRoom {
  KvPlaceOfPart place;
  double lease_seconds = 60;
  // OK: all of it is there. Else what ended it; nothing is written any more.
  std::function<void(const absl::Status&)> done;
};

class KvInbox {
 public:
  static absl::StatusOr<std::unique_ptr<KvInbox>> Start(KvInboxOptions options);
  ~KvInbox();

  // In the order of KvInboxOptions::listen, with the ports that the system chose.
  std::vector<std::string> addresses() const { return server_->addresses(); }
  // Connections that were refused, or whose pieces were.
  int64_t refused() const;

  // Returns the ticket.
  std::string Expect(KvPartRoom room);
  // Nothing is written for it when this returns, and `done` is not called any more.
  void Forget(const std::string& ticket);

 private:
  using Clock = std::chrono::steady_clock;

  struct Expected {
    Expected(KvPartRoom room, KvCoder* coder)
        : writer(room.place, &CoderOf(room.place.pool, coder)),
          lease(std::chrono::duration_cast<Clock::duration>(
              std::chrono::duration<double>(room.lease_seconds))),
          done(std::move(room.done)) {}

    KvPartWriter writer;  // of the connection's thread
    const Clock::duration lease;
    const std::function<void(const absl::Status&)> done;
    Clock::time_point until;
    bool connected = false;
    bool writing = false;
    bool forgotten = false;  // while it was being written
    bool ending = false;     // its outcome is being reported
  };

  explicit KvInbox(KvInboxOptions options) : options_(std::move(options)) {}
  void Take(kernels::AcceptedLink accepted);
  void WatchLeases();
  // Null: not expected, or its outcome is known.
  std::shared_ptr<Expected> FindLocked(const std::string& ticket) const;
  absl::Status CheckIdentity(const v1::LinkIdentity& peer) const;
  absl::Status Verify(const std::string& identity);
  // Whether somebody waits for what the peer is to send.
  bool Expects(const std::string& identity) const;
  void EndLeases();
  // Runs in a connection's thread.
  void Receive(kernels::Link* link, const std::string& ticket, uint64_t sender);
  absl::Status TakePiece(const std::string& ticket, const KvFramedPiece& framed,
                         KvReceiveChannel& channel, bool* complete);
  // For a piece on a device: lets its elements come, if the ticket expects it. Nothing is written.
  absl::Status AwaitElements(const std::string& ticket, const KvFramedPiece& framed,
                             KvReceiveChannel& channel);
  // Where devices could exchange it.
  void NoteThroughHost(uint64_t sender);
  void Finish(const std::string& ticket, const absl::Status& status);
  void CountRefused(const absl::Status& status);

  struct Connection {
    std::unique_ptr<kernels::Link> link;
    std::thread thread;
    bool over = false;
  };

  const KvInboxOptions options_;
  std::unique_ptr<kernels::LinkServer> server_;
  LogThrottle refusals_{std::chrono::seconds(1)};  // lines about them
  std::thread lease_thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Expected>> expected_;  // by ticket
  std::vector<std::unique_ptr<Connection>> connections_;
  std::set<uint64_t> through_host_;  // senders that were logged
  int64_t refused_ = 0;
  bool stopping_ = false;
};

}  // namespace tessera::worker

// How request_flow reaches the replicas: one link per ready replica, to its leader. deployment
// makes them over gRPC, tests make their own.
//
// Thread rule: Send may be called from any thread. A link calls its listener from one thread at a
// time, and never from inside Send.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

class ReplicaLink {
 public:
  virtual ~ReplicaLink() = default;
  virtual const std::string& replica() const = 0;
  // Sequences it runs at once (--max-num-seqs).
  virtual int64_t max_sequences() const = 0;
  // What its leader said when it was configured.
  virtual const v1::WorkerReady& ready() const = 0;
  // Queues one message; the link fills in the fence. False: the link is lost, the message was
  // dropped.
  virtual bool Send(v1::SessionRequest request) = 0;
  // Asks its leader for an answer that it keeps. `found` is called once, on another thread, within
  // `timeout_seconds` or little more. False: the link is lost, `found` is not called.
  using KeptFound = std::function<void(absl::StatusOr<v1::KeptAnswer>)>;
  virtual bool FindKept(const v1::FindKeptRequest& request, double timeout_seconds,
                        KeptFound found) = 0;
};

class ReplicaLinkListener {
 public:
  virtual ~ReplicaLinkListener() = default;
  virtual void OnLinkReady(std::shared_ptr<ReplicaLink> link) = 0;
  virtual void OnReply(const std::shared_ptr<ReplicaLink>& link, const v1::SessionReply& reply) = 0;
  // What its leader says of itself between replies.
  virtual void OnHeartbeat(const std::shared_ptr<ReplicaLink>&, const v1::EngineLoad&) {}
  // Once, last; what was submitted over it is continued elsewhere.
  virtual void OnLinkLost(const std::shared_ptr<ReplicaLink>& link, const absl::Status& reason) = 0;
};

}  // namespace tessera::coordinator

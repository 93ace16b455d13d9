// A ReplicaLink over gRPC: the coordinator's end of one Worker.Session stream to a leader.
//
// Thread rule: as ReplicaLink; each session has a thread, which calls the listener and alone waits
// on the stream's completion queue (gRPC's callback queue sleeps for 100 ms of each 1.1 s without
// an event, so a reply would wait). Lifetime: kept alive by its thread until OnLinkLost was called;
// gRPC is done with by then. Send and Close never block; the outbox is bounded, and a leader that
// stops reading counts as lost.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "coordinator/flow/replica_link.h"
#include "proto/worker.pb.h"

namespace grpc {
class Channel;
}

namespace tessera::coordinator {

struct WorkerSessionOptions {
  std::string replica;
  v1::Fence fence;
  std::string cluster_token;  // empty: none is sent
  uint64_t leader_term = 0;   // 0: none is sent
  int64_t max_sequences = 0;
  v1::WorkerReady ready;
  size_t max_outbox_messages = 65536;
};

class WorkerSession : public ReplicaLink {
 public:
  // Opens the stream; `listener` must outlive it. It hears OnLinkReady when the leader has accepted
  // the session, and OnLinkLost exactly once and last, also where it never did. A reply whose fence
  // is not the session's ends it (FAILED_PRECONDITION) and is not passed on.
  static std::shared_ptr<WorkerSession> Open(std::shared_ptr<grpc::Channel> channel,
                                             WorkerSessionOptions options,
                                             ReplicaLinkListener& listener);
  // Ends the stream; OnLinkLost follows with `reason`.
  virtual void Close(const absl::Status& reason) = 0;
};

}  // namespace tessera::coordinator

// A ReplicaLink over gRPC: the coordinator's end of one Worker.Session stream to a leader.
//
// Thread rule: as ReplicaLink. Lifetime: kept alive by the stream until OnLinkLost was called. Send
// never blocks; the stream's outbox is bounded, and a leader that stops reading is taken for lost.
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

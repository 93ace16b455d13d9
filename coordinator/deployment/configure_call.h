// One Configure call to one worker: progress while it loads, then how it ended.
//
// Thread rule: Begin and Cancel from any thread; events come from gRPC's threads, one at a time,
// `done` exactly once and last. Lifetime: keeps itself alive until `done` has returned. Never
// blocks; the call has a deadline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace grpc {
class Channel;
}

namespace tessera::coordinator {

class ConfigureCall {
 public:
  struct Events {
    std::function<void(const v1::ConfigureProgress&)> progress;
    // OK only with a WorkerReady that has KV blocks.
    std::function<void(const absl::Status&, const v1::WorkerReady&)> done;
  };

  // `leader_term` 0: none is sent.
  static std::shared_ptr<ConfigureCall> Begin(const std::shared_ptr<grpc::Channel>& channel,
                                              v1::ConfigureRequest request,
                                              const std::string& cluster_token,
                                              uint64_t leader_term, double timeout_seconds,
                                              Events events);
  virtual ~ConfigureCall() = default;
  // `done` follows with CANCELLED, unless it is under way already.
  virtual void Cancel() = 0;
};

}  // namespace tessera::coordinator

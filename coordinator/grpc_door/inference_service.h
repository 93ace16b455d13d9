// The gRPC front door for users (proto/inference.proto): the twin of http_api, with the same
// defaults and checks.
//
// Thread rule: thread-safe. A client that cancels, or does not read its stream for long, has its
// generation cancelled. What it borrows must outlive the service.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/key_ring.h"
#include "coordinator/api/served_models.h"
#include "coordinator/flow/generation.h"
#include "coordinator/http/large_bodies.h"

namespace grpc {
class Service;
}

namespace tessera::coordinator {

struct InferenceServiceOptions {
  KeyRing keys = {};
  int64_t max_pending_bytes = 64 << 10;  // of one stream; a slow reader's is cancelled
  LargeBodiesOptions large_bodies = {};  // read off gRPC's threads; one too many: UNAVAILABLE
  // Called for each request to generate that the service refuses before it starts.
  std::function<void(absl::StatusCode)> refused = {};
  std::function<int64_t()> now_unix_seconds = {};  // time of day
};

std::unique_ptr<grpc::Service> MakeInferenceService(InferenceServiceOptions options,
                                                    ServedModels models);

}  // namespace tessera::coordinator

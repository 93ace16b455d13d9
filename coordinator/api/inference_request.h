// gRPC requests (proto/inference.proto) -> what is to be generated; the twin of openai_request.
// Pure translation. Errors: InvalidArgument naming the field, NotFound for another model.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/flow/generation.h"
#include "proto/inference.pb.h"

namespace tessera::coordinator {

absl::StatusOr<GenerationRequest> ReadCompletion(const v1::CompletionRequest& request,
                                                 const ServedModel& model);
absl::StatusOr<GenerationRequest> ReadChat(const v1::ChatRequest& request, const ServedModel& model,
                                           int64_t now_unix_seconds);

}  // namespace tessera::coordinator

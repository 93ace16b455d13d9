// gRPC requests (proto/inference.proto) -> what is to be generated; the twin of openai_request.
// Pure translation. Errors: InvalidArgument naming the field, NotFound for another model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/answer/answer_parser.h"
#include "coordinator/api/front_door.h"
#include "coordinator/flow/generation.h"
#include "proto/inference.pb.h"

namespace tessera::coordinator {

struct InferenceCall {
  GenerationRequest request;
  std::shared_ptr<const AnswerFormat> answer_format;  // null: all is text
  std::vector<std::string> not_enforced;              // fields that ask for more than is promised
};

absl::StatusOr<InferenceCall> ReadCompletion(const v1::CompletionRequest& request,
                                             const ServedModel& model);

absl::StatusOr<InferenceCall> ReadChat(const v1::ChatRequest& request, const ServedModel& model,
                                       int64_t now_unix_seconds);

}  // namespace tessera::coordinator

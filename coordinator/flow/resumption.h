// Stands before the request flow, and has requests with GenerationRequest::resumes go on with the
// answer that a worker keeps under their answer_id.
//
//   the leaders of all replicas are asked -> the newest answer is compared with the request ->
//   RequestFlow sends its tokens and has a replica go on behind them
//
// Where the answer still runs here, its stream ends once the new one is admitted: one reader at a
// time. Errors of a request that resumes, which its sink hears unless they are known at once:
//   NOT_FOUND        no leader keeps such an answer of this client
//   INVALID_ARGUMENT it is the answer to another request, or one that cannot be resumed
//   UNAVAILABLE      a leader did not answer within 2 s, or a replica became ready so lately that
//                    others may follow: try again
//
// Thread rule: thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/flow/generation.h"
#include "coordinator/flow/request_flow.h"

namespace tessera::coordinator {

class Resumption final : public GenerationService {
 public:
  explicit Resumption(std::shared_ptr<RequestFlow> flow);

  absl::StatusOr<std::unique_ptr<GenerationHandle>> Start(
      GenerationRequest request, std::shared_ptr<GenerationSink> sink) override;

  // Ends those that look for their answer, and takes no others. Leaders that answer after it has
  // returned reach neither a sink nor the flow.
  void AbortAll(const absl::Status& reason);

 private:
  class Search;
  struct Searches;

  const std::shared_ptr<RequestFlow> flow_;
  const std::shared_ptr<Searches> searches_;
};

}  // namespace tessera::coordinator

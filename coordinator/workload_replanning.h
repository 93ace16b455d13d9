// The watch of the workload, put together for a coordinator that plans for the workers of a cluster
// description: requests are counted on their way in, and a replanner follows them.
//
// Thread rule: as coordinator/serving.h; door() and advice() are thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/coordinator_options.h"
#include "coordinator/deployment/deployment.h"
#include "coordinator/deployment/registered_cluster.h"
#include "coordinator/deployment/worker_pool.h"
#include "coordinator/flow/draft_counts.h"
#include "coordinator/flow/generation.h"
#include "coordinator/replanning/guarded_watch.h"
#include "coordinator/replanning/replanner.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

class WorkloadReplanning {
 public:
  // Counts what goes to `next`, which outlives it. Plans count on the drafts that `draft_counts`
  // has. Without --cluster, or with --replan off, it does nothing. Errors: those of the files.
  static absl::StatusOr<std::unique_ptr<WorkloadReplanning>> Make(
      const CoordinatorOptions& options, const v1::ConfigureRequest& configure,
      ReadDraftCounts draft_counts, GenerationService& next);

  // Both outlive it.
  void Start(WorkerPool& pool, Deployment& deployment);
  // Ends a search under way.
  void Stop() { replanner_.reset(); }
  GenerationService& door() { return counted_ != nullptr ? *counted_ : next_; }
  // A whole plan that would serve the workload better, a line for people; empty: none is known.
  std::string advice() const { return watch_ == nullptr ? "" : watch_->advice(); }

 private:
  explicit WorkloadReplanning(GenerationService& next) : next_(next) {}

  GenerationService& next_;
  ReplanMode mode_ = ReplanMode::kOff;
  std::optional<ClusterQuestion> start_;  // nothing: nothing is watched
  v1::Model model_;
  ReadDraftCounts draft_counts_;
  std::shared_ptr<GuardedWatch> watch_;
  std::unique_ptr<GenerationService> counted_;
  std::unique_ptr<Replanner> replanner_;
};

}  // namespace tessera::coordinator

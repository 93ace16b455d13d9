#include "coordinator/deployment/progress_watch.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::coordinator {
namespace {

const char* Phase(const ReplicaProgress& replica) {
  if (replica.prefilling_sequences == 0) return "decode";
  return replica.prefilling_sequences < replica.sequences ? "prefill and decode" : "prefill";
}

void AddSteps(const v1::Replica& planned, const std::map<std::string, WorkerRecord>& workers,
              ReplicaProgress& progress) {
  std::optional<uint64_t> fewest;
  for (int stage = 0; stage < planned.stages_size(); ++stage) {
    for (int rank = 0; rank < planned.stages(stage).workers_size(); ++rank) {
      const std::string& name = planned.stages(stage).workers(rank).device();
      const auto found = workers.find(name);
      const uint64_t steps = found == workers.end() ? 0 : found->second.load.steps();
      progress.pulse += steps;
      if (fewest.has_value() && steps >= *fewest) continue;
      fewest = steps;
      progress.worker = name;
      progress.stage = stage;
      progress.rank = rank;
    }
  }
}

}  // namespace

std::vector<ReplicaProgress> JoinProgress(const v1::DeploymentPlan& plan,
                                          const std::map<std::string, WorkerRecord>& workers,
                                          const std::vector<ReplicaActivity>& activity) {
  std::map<std::string, const v1::Replica*> planned;
  for (const v1::Replica& replica : plan.replicas()) planned[replica.name()] = &replica;
  std::vector<ReplicaProgress> all;
  for (const ReplicaActivity& active : activity) {
    ReplicaProgress progress;
    progress.replica = active.replica;
    progress.pulse = active.messages;
    progress.sequences = active.running_sequences;
    progress.prefilling_sequences = active.prefilling_sequences;
    const auto found = planned.find(active.replica);
    if (found != planned.end()) AddSteps(*found->second, workers, progress);
    all.push_back(std::move(progress));
  }
  return all;
}

std::string Describe(const Stall& stall) {
  const ReplicaProgress& last = stall.last;
  return absl::StrCat("replica ", last.replica, ": no step for ",
                      static_cast<int64_t>(stall.seconds), " s with ", last.sequences,
                      " sequences in ", Phase(last), "; worker ", last.worker, " (stage ",
                      last.stage, ", rank ", last.rank, ") is behind");
}

ProgressWatch::Changes ProgressWatch::Update(const std::vector<ReplicaProgress>& replicas,
                                             double now_seconds) {
  Changes changes;
  if (timeout_seconds_ <= 0) return changes;
  std::lock_guard lock(mutex_);
  std::map<std::string, Watched> next;
  for (const ReplicaProgress& replica : replicas) {
    const auto found = watched_.find(replica.replica);
    const bool known = found != watched_.end();
    const bool moved = !known || found->second.stall.last.pulse != replica.pulse;
    Watched& watched = next[replica.replica];
    if (known) watched = std::move(found->second);
    if (moved && watched.stalled) changes.moving.push_back(replica.replica);
    if (moved) watched.stalled = false;
    const bool idle = replica.sequences == 0 && !watched.stalled;
    if (moved || idle) watched.since_seconds = now_seconds;
    // A stuck one that nobody waits for any more is stuck all the same, with what it had.
    if (!watched.stalled || replica.sequences > 0) watched.stall.last = replica;
    watched.stall.seconds = now_seconds - watched.since_seconds;
    if (watched.stalled || watched.stall.seconds < timeout_seconds_) continue;
    watched.stalled = true;
    changes.stalled.push_back(watched.stall);
  }
  watched_ = std::move(next);
  return changes;
}

std::vector<Stall> ProgressWatch::stalled() const {
  std::lock_guard lock(mutex_);
  std::vector<Stall> all;
  for (const auto& [name, watched] : watched_) {
    if (watched.stalled) all.push_back(watched.stall);
  }
  return all;
}

}  // namespace tessera::coordinator

#include "coordinator/deployment/straggler_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// A replica this slow for so long may be worth a plan without it.
constexpr double kReplanFactor = 2, kReplanSeconds = 60;
// A worker of several computes this much longer, or it is not the one.
constexpr double kBlamedFrom = 1.15;

scheduler::StepTotals TotalsOf(const v1::EngineLoad& load) {
  return {.decode_steps = static_cast<int64_t>(load.steps() - load.prefill_steps()),
          .decode_seconds = load.decode_step_seconds(),
          .prefill_steps = static_cast<int64_t>(load.prefill_steps()),
          .prefill_seconds = load.prefill_step_seconds(),
          .prompt_tokens = static_cast<int64_t>(load.prompt_tokens()),
          .generation_tokens = static_cast<int64_t>(load.generation_tokens())};
}

// Its part in its leader's steps, of both kinds.
scheduler::StepTotals PartOf(const v1::WorkerCounters& counters, const v1::EngineLoad& leader) {
  return {.decode_steps = static_cast<int64_t>(leader.steps()),
          .decode_seconds = counters.busy_seconds(),
          .generation_tokens =
              static_cast<int64_t>(leader.generation_tokens() + leader.prompt_tokens())};
}

bool IsAlone(const v1::Replica& replica) {
  return replica.stages_size() == 1 && replica.stages(0).workers_size() == 1;
}

}  // namespace

std::string Describe(const Straggler& straggler) {
  std::string text =
      absl::StrFormat("slow: its steps take %.1f times as long as before, for %.0f s",
                      straggler.factor, straggler.seconds);
  absl::StrAppend(&text,
                  straggler.workers.empty()
                      ? " (none of its workers computes longer: look at their links)"
                      : absl::StrCat(" (worker ", absl::StrJoin(straggler.workers, ", "), ")"),
                  "; it gets fewer requests");
  if (straggler.factor >= kReplanFactor && straggler.seconds >= kReplanSeconds) {
    absl::StrAppendFormat(
        &text,
        "; if it stays so, a plan without it may serve more (`tessera plan` on a cluster "
        "description without it, then `tessera plan apply`; with --cluster one comes by itself "
        "where it is %.0f times, for --replan-after)",
        kLeftOutFactor);
  }
  return text;
}

void StragglerWatch::Update(const v1::DeploymentPlan& plan,
                            const std::map<std::string, WorkerRecord>& workers,
                            double now_seconds) {
  std::lock_guard lock(mutex_);
  for (const v1::Replica& replica : plan.replicas()) {
    const auto leader = workers.find(replica.stages(0).workers(0).device());
    if (leader == workers.end()) continue;
    replicas_.Observe(replica.name(), TotalsOf(leader->second.load), now_seconds);
    if (!IsAlone(replica)) ObserveWorkers(replica, workers, leader->second.load, now_seconds);
  }
  replicas_.Judge(now_seconds);
  workers_.Judge(now_seconds);
  std::map<std::string, Slow> before;
  std::swap(before, slow_);
  for (const v1::Replica& replica : plan.replicas()) {
    if (const auto was = before.find(replica.name()); was != before.end()) slow_.insert(*was);
    NoteChange(replica, now_seconds);
    before.erase(replica.name());
  }
  for (const auto& [name, gone] : before) replicas_.Forget(name);
}

void StragglerWatch::ObserveWorkers(const v1::Replica& replica,
                                    const std::map<std::string, WorkerRecord>& workers,
                                    const v1::EngineLoad& leader, double now_seconds) {
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) {
      const auto found = workers.find(worker.device());
      if (found == workers.end()) continue;
      const v1::WorkerCounters& counters = found->second.counters;
      // They come with heartbeats, the leader's steps with every reply.
      double& taken = uptimes_[worker.device()];
      if (std::exchange(taken, counters.uptime_seconds()) == counters.uptime_seconds()) continue;
      workers_.Observe(worker.device(), PartOf(counters, leader), now_seconds);
    }
  }
}

void StragglerWatch::NoteChange(const v1::Replica& replica, double now_seconds) {
  const double factor = replicas_.Of(replica.name());
  const auto was = slow_.find(replica.name());
  if (factor <= 1) {
    if (was == slow_.end()) return;
    slow_.erase(was);
    Logger("coordinator").info("replica {} is as fast as before", replica.name());
    return;
  }
  Slow& slow = slow_[replica.name()];
  if (slow.logged_factor == 1) slow.since_seconds = now_seconds;
  if (slow.straggler.factor < kLeftOutFactor) slow.much_since_seconds = now_seconds;
  slow.straggler = {
      .replica = replica.name(), .factor = factor, .seconds = now_seconds - slow.since_seconds};
  if (factor >= kLeftOutFactor) slow.straggler.much_seconds = now_seconds - slow.much_since_seconds;
  for (const v1::Stage& stage : replica.stages()) {
    for (const v1::PlannedWorker& worker : stage.workers()) {
      if (IsAlone(replica) || workers_.Of(worker.device()) >= kBlamedFrom)
        slow.straggler.workers.push_back(worker.device());
    }
  }
  // Its first seconds are measured together with those before: the factor grows.
  if (slow.logged_factor > 1 && factor < 2 * slow.logged_factor) return;
  slow.logged_factor = factor;
  Logger("coordinator").warn("replica {} is {}", replica.name(), Describe(slow.straggler));
}

std::vector<Straggler> StragglerWatch::stragglers() const {
  std::lock_guard lock(mutex_);
  std::vector<Straggler> all;
  for (const auto& [name, slow] : slow_) all.push_back(slow.straggler);
  return all;
}

std::map<std::string, double> StragglerWatch::factors() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, double> all;
  for (const auto& [name, slow] : slow_) all[name] = slow.straggler.factor;
  return all;
}

}  // namespace tessera::coordinator

#include "coordinator/replanning/replanner.h"

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

WorkloadFigures PlannedFor(const v1::DeploymentPlan& plan) {
  const v1::PlanBasis& basis = plan.basis();
  // Only a rate that was asked for says how many requests were expected.
  return {.requests_per_second = plan.certificate().asked_requests_per_second(),
          .prompt_tokens = basis.prompt_tokens(),
          .uncached_prompt_tokens = basis.uncached_prompt_tokens(),
          .output_tokens = basis.output_tokens()};
}

std::string Words(const WorkloadFigures& figures) {
  return absl::StrFormat("prompts of %.0f tokens (%.0f not cached) and answers of %.0f",
                         figures.prompt_tokens, figures.uncached_prompt_tokens,
                         figures.output_tokens);
}

std::string Words(const scheduler::PlanFigures& figures) {
  return absl::StrFormat("%.3f requests/s, TTFT %.3f s, TPOT %.1f ms", figures.requests_per_second,
                         figures.ttft_seconds, figures.tpot_seconds * 1e3);
}

std::string Word(v1::ReplicaRole role) {
  switch (role) {
    case v1::REPLICA_ROLE_PREFILL: return "prefill";
    case v1::REPLICA_ROLE_DECODE: return "decode";
    default: return "both";
  }
}

// "r0 prefill -> both, r2 decode -> prefill"; empty: only routes change.
std::string RoleChanges(const v1::DeploymentPlan& from, const v1::DeploymentPlan& to) {
  std::vector<std::string> changes;
  for (int i = 0; i < to.replicas_size(); ++i) {
    const std::string before = Word(from.replicas(i).role());
    const std::string after = Word(to.replicas(i).role());
    if (before != after)
      changes.push_back(absl::StrCat(to.replicas(i).name(), " ", before, " -> ", after));
  }
  return absl::StrJoin(changes, ", ");
}

}  // namespace

ReplanMode ReplanModeNamed(const std::string& name) {
  if (name == "off") return ReplanMode::kOff;
  return name == "auto" ? ReplanMode::kAuto : ReplanMode::kRoles;
}

Replanner::Replanner(ReplannerOptions options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

Replanner::~Replanner() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

bool Replanner::stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

void Replanner::Run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::duration<double>(options_.look_seconds),
                     [this] { return stopping_; });
      if (stopping_) return;
    }
    Look();
  }
}

void Replanner::Follow(const v1::DeploymentPlan& plan, uint64_t epoch) {
  if (epoch == epoch_) return;  // else it may be the same: a replica was formed again
  epoch_ = epoch;
  std::string bytes = plan.SerializeAsString();
  if (bytes == followed_) return;
  followed_ = std::move(bytes);
  options_.watch->With([&](WorkloadWatch& watch) { watch.SetReference(PlannedFor(plan)); });
  options_.watch->set_advice("");
}

void Replanner::Look() {
  if (options_.changing()) return;
  const auto [plan, epoch] = options_.running();
  if (plan.replicas().empty() || !plan.has_basis()) return;
  Follow(plan, epoch);
  v1::Workload workload;
  WorkloadFigures reference, recent;
  const bool changed = options_.watch->With([&](WorkloadWatch& watch) {
    const double now = options_.now_seconds();
    if (!watch.Changed(now)) return false;
    reference = watch.reference();
    recent = watch.Recent(now);
    workload = watch.Observed(now);
    WorkloadFigures judged = recent;
    if (reference.requests_per_second <= 0) {
      judged.requests_per_second = 0;
      workload.set_requests_per_second(0);
    }
    watch.NoteJudged(now);
    watch.SetReference(judged);
    return true;
  });
  if (!changed) return;
  Logger("coordinator")
      .info("the workload has changed: {}, {:.2f} requests/s; the plan was judged for {}",
            Words(recent), recent.requests_per_second, Words(reference));
  ChangeRoles(plan, workload);
}

void Replanner::ChangeRoles(const v1::DeploymentPlan& plan, const v1::Workload& workload) {
  absl::StatusOr<scheduler::RoleChoice> choice = options_.roles(plan, workload, Watch());
  if (stopping()) return;
  if (!choice.ok()) {
    Logger("coordinator")
        .warn("the plan cannot be judged for this workload: {}",
              std::string(choice.status().message()));
    return;
  }
  if (choice->gain >= options_.min_gain) {
    const std::string roles = RoleChanges(plan, choice->plan);
    Logger("coordinator")
        .info(
            "{}: {} are expected instead of {}, {:.0f} % better; no weights are read",
            roles.empty() ? "requests are shared otherwise" : absl::StrCat("roles change, ", roles),
            Words(choice->figures), Words(choice->running), choice->gain * 100);
    if (!Apply(choice->plan)) return;
  } else {
    Logger("coordinator")
        .info("roles stay: {} are expected; others are at most {:.0f} % better",
              Words(choice->running), choice->gain * 100);
    choice->figures = choice->running;
  }
  ConsiderWhole(workload, *choice);
}

void Replanner::ConsiderWhole(const v1::Workload& workload, const scheduler::RoleChoice& roles) {
  const absl::StatusOr<v1::DeploymentPlan> plan = options_.whole(workload, Watch());
  if (!plan.ok() || stopping()) return;
  const scheduler::PlanFigures figures = scheduler::FiguresOf(*plan);
  const double gain = scheduler::GainOver(figures, roles.figures, roles.preference);
  if (!(gain >= options_.min_gain)) return;
  const std::string better = absl::StrFormat(
      "another plan of %d replicas would serve this workload %.0f %% better: %s instead of %s",
      plan->replicas_size(), gain * 100, Words(figures), Words(roles.figures));
  if (options_.mode == ReplanMode::kAuto) {
    Logger("coordinator").info("{}; it is applied (--replan auto)", better);
    Apply(*plan);
    return;
  }
  const v1::PlanBasis& basis = plan->basis();
  const std::string advice = absl::StrFormat(
      "%s; --replan auto would apply it, or plan with a --workload of %.0f prompt tokens and %.0f "
      "output tokens and use `tessera plan apply`",
      better, basis.prompt_tokens(), basis.output_tokens());
  Logger("coordinator").warn("{}", advice);
  options_.watch->set_advice(advice);
}

bool Replanner::Apply(const v1::DeploymentPlan& plan) {
  auto applied = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> done = applied->get_future();
  options_.apply(plan, [applied](const absl::StatusOr<v1::ApplyPlanReply>& reply) {
    applied->set_value(reply.status());
  });
  while (done.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    if (stopping()) return false;
  }
  const absl::Status status = done.get();
  if (!status.ok())
    Logger("coordinator").warn("the plan is not applied: {}", std::string(status.message()));
  return status.ok();
}

scheduler::SearchWatch Replanner::Watch() {
  const double end = options_.now_seconds() + options_.time_limit_seconds;
  scheduler::SearchWatch watch;
  watch.stop = [this, end] { return stopping() || options_.now_seconds() >= end; };
  return watch;
}

}  // namespace tessera::coordinator

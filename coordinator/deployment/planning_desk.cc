#include "coordinator/deployment/planning_desk.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/request/plan_request.h"

namespace tessera::coordinator {

PlanningDesk::PlanningDesk(PlanningDeskOptions options)
    : options_(std::move(options)), thread_([this] { Run(); }) {}

PlanningDesk::~PlanningDesk() { Stop(); }

void PlanningDesk::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (Waiting& waiting : std::exchange(waiting_, {}))
    waiting.done(absl::UnavailableError("the coordinator is shutting down"));
}

void PlanningDesk::Plan(v1::PlanRequest request, Done done) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_ && waiting_.size() < options_.max_waiting) {
      waiting_.push_back({std::move(request), std::move(done)});
      wake_.notify_all();
      return;
    }
  }
  done(absl::UnavailableError(
      stopping_ ? std::string("the coordinator is shutting down")
                : absl::StrCat(options_.max_waiting,
                               " planning requests wait already; try again later")));
}

void PlanningDesk::Apply(v1::ApplyPlanRequest request, Applied done) {
  std::vector<v1::DeploymentPlan> plans(std::make_move_iterator(request.mutable_plans()->begin()),
                                        std::make_move_iterator(request.mutable_plans()->end()));
  if (request.has_plan()) plans.push_back(std::move(*request.mutable_plan()));
  if (plans.empty())
    return done(absl::InvalidArgumentError("plan: it is missing; give the plan to be applied"));
  options_.apply(std::move(plans), std::move(done));
}

void PlanningDesk::Run() {
  while (true) {
    Waiting next;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const double end = options_.now_seconds() + options_.time_limit_seconds;
    scheduler::SearchWatch watch;
    watch.stop = [this, end] { return stopping_ || options_.now_seconds() >= end; };
    AddRunning(&next.request);
    next.done(scheduler::AnswerPlanRequest(next.request, options_.served_model, std::move(watch),
                                           DraftsFor(next.request)));
  }
}

// Those of other models say nothing about it.
v1::DraftTerms PlanningDesk::DraftsFor(const v1::PlanRequest& request) const {
  const bool served = !request.has_model() || request.model().ByteSizeLong() == 0 ||
                      request.model().name() == options_.served_model.name();
  return options_.drafts == nullptr || !served ? v1::DraftTerms() : options_.drafts();
}

// What a plan for the served model would be moved from is the plan in force.
void PlanningDesk::AddRunning(v1::PlanRequest* request) const {
  if (request->has_running() || !request->models().empty()) return;
  v1::GetPlanReply running = options_.running();
  if (running.plans().empty()) *running.add_plans() = std::move(*running.mutable_plan());
  const bool is_first = !request->has_model() || request->model().ByteSizeLong() == 0;
  // Two models may have one shape: the one of that name comes first.
  std::stable_partition(running.mutable_plans()->begin(), running.mutable_plans()->end(),
                        [&](const v1::DeploymentPlan& plan) {
                          return is_first || plan.model().name() == request->model().name();
                        });
  for (v1::DeploymentPlan& plan : *running.mutable_plans()) {
    const bool served = is_first || scheduler::CheckPlanIsFor(plan, request->model()).ok();
    if (!served) continue;
    if (!plan.replicas().empty()) *request->mutable_running() = std::move(plan);
    return;
  }
}

}  // namespace tessera::coordinator

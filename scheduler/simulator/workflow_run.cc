// Workflows on simulated replicas: the source of their calls, their dispatch, and tuning by replay.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

#include "scheduler/deadline_order.h"
#include "scheduler/simulator/workflows.h"
#include "third_party/absl/str_cat.h"

namespace tessera::scheduler {
namespace {

class WorkflowRun : public RequestSource, public Dispatcher {
 public:
  WorkflowRun(const std::vector<ReplicaSetup>& replicas, const std::vector<Workflow>& workflows,
              const WorkflowPolicy& policy, const TuningOptions& tuning,
              const WorkflowCall& expected, const std::vector<ScheduledChange>& changes,
              const std::vector<SharedLink>& links)
      : replicas_(replicas),
        changes_(changes),
        links_(links),
        workflows_(workflows),
        policy_(policy),
        tuning_(tuning),
        expected_(expected),
        round_robin_(MakeRoundRobinDispatcher()),
        states_(workflows.size()),
        ready_(replicas.size(), true) {
    const double context = static_cast<double>(expected.prompt_tokens) +
                           static_cast<double>(expected.output_tokens) / 2;
    for (const ReplicaSetup& replica : replicas) {
      speeds_.push_back(SpeedOf(replica, context));
      base_seconds_ = std::min(base_seconds_, speeds_.back().AloneSeconds(expected));
    }
    result_.seconds.assign(workflows.size(), -1);
    next_tuning_ = std::min(tuning.first, tuning.every);
  }

  absl::StatusOr<WorkflowResult> Run() {
    SimulationSetup setup;
    for (const ReplicaSetup& replica : replicas_) {
      if (replica.role == Role::kBoth) continue;
      return absl::InvalidArgumentError(StrCat("replica ", replica.name,
                                               " only prefills or only decodes: workflows are "
                                               "dispatched to replicas that do both"));
    }
    setup.replicas = replicas_;
    setup.changes = changes_;
    setup.transfers.links = links_;
    setup.source = this;
    for (size_t w = 0; w < workflows_.size(); ++w) {
      AppendStage(static_cast<int64_t>(w), 0, workflows_[w].arrival_seconds, &setup.requests);
    }
    absl::StatusOr<SimulationResult> simulated = Simulate(setup, this);
    if (!simulated.ok()) return simulated.status();
    result_.calls = static_cast<int64_t>(simulated->requests.size());
    result_.simulation = *std::move(simulated);
    Score();
    return std::move(result_);
  }

  // RequestSource
  void OnEnd(int32_t /*request*/, const SimulatedRequest& what, const RequestOutcome& outcome,
             std::vector<SimulatedRequest>* arrivals) override {
    State& state = states_[static_cast<size_t>(what.workflow)];
    state.failed |= outcome.fate != Fate::kFinished;
    if (--state.open > 0) return;
    const Workflow& workflow = workflows_[static_cast<size_t>(what.workflow)];
    const size_t next = static_cast<size_t>(what.stage) + 1;
    if (next < workflow.stages.size() && !state.failed) {
      AppendStage(what.workflow, static_cast<int32_t>(next), outcome.finished_seconds, arrivals);
      return;
    }
    if (!state.failed) {
      result_.seconds[static_cast<size_t>(what.workflow)] =
          outcome.finished_seconds - workflow.arrival_seconds;
    }
    state.ended = true;
    if (tuning_.tuned && Arrived(outcome.finished_seconds) >= next_tuning_)
      Tune(outcome.finished_seconds);
  }

  // Dispatcher
  double Rank(const SimulatedRequest& request, double now) override {
    if (policy_.round_robin || !policy_.by_urgency) return now;
    const Workflow& workflow = workflows_[static_cast<size_t>(request.workflow)];
    return DeadlineRank({.deadline_seconds = workflow.arrival_seconds + workflow.deadline_seconds,
                         .stages_left = static_cast<double>(workflow.stages.size()) -
                                        static_cast<double>(request.stage),
                         .expected_seconds = base_seconds_},
                        now);
  }

  Route Choose(std::span<const ReplicaLoad> loads, const SimulatedRequest& request,
               double now) override {
    for (size_t r = 0; r < loads.size(); ++r) ready_[r] = loads[r].ready;
    if (policy_.round_robin) {
      ++result_.round_robin_calls;
      return round_robin_->Choose(loads, request, now);
    }
    const WorkflowCall call = {request.prompt_tokens, expected_.output_tokens};
    double base_time = std::numeric_limits<double>::infinity(), base_work = base_time;
    for (size_t r = 0; r < loads.size(); ++r) {
      if (!loads[r].ready) continue;
      base_time = std::min(base_time, speeds_[r].AloneSeconds(call));
      base_work = std::min(base_work, WorkOf(speeds_[r], call));
    }
    Route best;
    double best_score = -std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < loads.size(); ++r) {
      const ReplicaLoad& load = loads[r];
      if (!load.ready) continue;
      const double outstanding =
          speeds_[r].WorkSeconds(static_cast<double>(load.queued_prompt_tokens),
                                 static_cast<double>(load.outstanding_output_tokens));
      const double score = policy_.alpha * base_time / speeds_[r].AloneSeconds(call) -
                           (1 - policy_.alpha) * outstanding / base_work;
      if (score <= best_score) continue;
      best_score = score;
      best = {static_cast<int>(r), static_cast<int>(r), 0};
    }
    return best;
  }

 private:
  struct State {
    int64_t open = 0;  // calls of the stage in progress
    size_t stage = 0;  // the last that was sent
    bool failed = false;
    bool ended = false;
  };

  static double WorkOf(const ReplicaSpeed& speed, const WorkflowCall& call) {
    return speed.WorkSeconds(static_cast<double>(call.prompt_tokens),
                             static_cast<double>(call.output_tokens));
  }

  void AppendStage(int64_t workflow, int32_t stage, double now,
                   std::vector<SimulatedRequest>* out) {
    const auto& calls =
        workflows_[static_cast<size_t>(workflow)].stages[static_cast<size_t>(stage)];
    for (const WorkflowCall& call : calls) {
      SimulatedRequest request;
      request.arrival_seconds = now;
      request.prompt_tokens = call.prompt_tokens;
      request.output_tokens = call.output_tokens;
      request.workflow = workflow;
      request.stage = stage;
      out->push_back(request);
    }
    State& state = states_[static_cast<size_t>(workflow)];
    state.open = static_cast<int64_t>(calls.size());
    state.stage = static_cast<size_t>(stage);
  }

  void Score() {
    std::vector<double> seconds;
    int64_t met = 0;
    for (size_t w = 0; w < workflows_.size(); ++w) {
      const double s = result_.seconds[w];
      seconds.push_back(s < 0 ? std::numeric_limits<double>::infinity() : s);
      met += s >= 0 && s <= workflows_[w].deadline_seconds ? 1 : 0;
    }
    if (seconds.empty()) return;
    std::sort(seconds.begin(), seconds.end());
    result_.attainment = static_cast<double>(met) / static_cast<double>(seconds.size());
    result_.p95_seconds = seconds[(seconds.size() * 95 + 99) / 100 - 1];
  }

  int64_t Arrived(double now) const {
    return std::upper_bound(
               workflows_.begin(), workflows_.end(), now,
               [](double at, const Workflow& workflow) { return at < workflow.arrival_seconds; }) -
           workflows_.begin();
  }

  // The last that arrived, as far as they are known: how long answers will be that are being
  // written, and what comes after them, nobody knows.
  std::vector<Workflow> Window(double now) const {
    const int64_t arrived_count = Arrived(now);
    const auto arrived = workflows_.begin() + arrived_count;
    const int64_t count = std::min(arrived_count, tuning_.window);
    std::vector<Workflow> window(arrived - count, arrived);
    const auto first = static_cast<size_t>(arrived_count - count);
    for (size_t i = 0; i < window.size(); ++i) {
      const State& state = states_[first + i];
      if (state.ended) continue;
      window[i].stages.resize(state.stage + 1);
      for (WorkflowCall& call : window[i].stages.back())
        call.output_tokens = expected_.output_tokens;
    }
    return window;
  }

  // Replays the window under every choice and takes the best from here on.
  void Tune(double now) {
    const int64_t arrived = Arrived(now);
    next_tuning_ = arrived + std::min(arrived, tuning_.every);
    const std::clock_t start = std::clock();
    const std::vector<Workflow> window = Window(now);
    std::vector<ReplicaSetup> replicas = replicas_;
    for (size_t r = 0; r < replicas.size(); ++r) replicas[r].ready = ready_[r];
    const auto replay = [&](const WorkflowPolicy& policy) {
      return SimulateWorkflows(replicas, window, policy, {}, expected_, {}, links_);
    };
    WorkflowPolicy best;  // round-robin
    const absl::StatusOr<WorkflowResult> plain = replay(best);
    if (!plain.ok()) return;
    double best_gain = tuning_.least_gain;
    for (const double alpha : tuning_.alphas) {
      for (const bool by_urgency : {false, true}) {
        const WorkflowPolicy policy = {false, alpha, by_urgency};
        const absl::StatusOr<WorkflowResult> tried = replay(policy);
        if (!tried.ok()) continue;
        const double one = 1 / static_cast<double>(window.size());
        const double attained = std::log((tried->attainment + one) / (plain->attainment + one));
        const double faster = std::log(plain->p95_seconds / tried->p95_seconds);
        // What loses in one of the two is left alone, however much it gains in the other.
        const bool gains = attained >= 0 && faster >= 0 && attained + faster > best_gain;
        if (!gains) continue;  // nor where both fail
        best_gain = attained + faster;
        best = policy;
      }
    }
    policy_ = best;
    ++result_.tunings;
    result_.longest_tuning_seconds = std::max(
        result_.longest_tuning_seconds, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }

  const std::vector<ReplicaSetup>& replicas_;
  const std::vector<ScheduledChange>& changes_;
  const std::vector<SharedLink>& links_;
  const std::vector<Workflow>& workflows_;
  WorkflowPolicy policy_;
  const TuningOptions tuning_;
  const WorkflowCall expected_;
  const std::unique_ptr<Dispatcher> round_robin_;
  std::vector<ReplicaSpeed> speeds_;
  double base_seconds_ = std::numeric_limits<double>::infinity();
  std::vector<State> states_;
  std::vector<bool> ready_;  // of each replica, when last asked
  int64_t ended_ = 0;        // workflows
  int64_t next_tuning_ = 0;
  WorkflowResult result_;
};

}  // namespace

absl::StatusOr<WorkflowResult> SimulateWorkflows(
    const std::vector<ReplicaSetup>& replicas, const std::vector<Workflow>& workflows,
    const WorkflowPolicy& policy, const TuningOptions& tuning, const WorkflowCall& expected,
    const std::vector<ScheduledChange>& changes, const std::vector<SharedLink>& links) {
  return WorkflowRun(replicas, workflows, policy, tuning, expected, changes, links).Run();
}

absl::StatusOr<double> WorkflowCapacity(const std::vector<ReplicaSetup>& replicas,
                                        std::vector<Workflow> workflows,
                                        const WorkflowCall& expected,
                                        const std::vector<SharedLink>& links) {
  for (Workflow& workflow : workflows) workflow.arrival_seconds = 0;
  const WorkflowPolicy by_outstanding_work = {false, 0.1, false};
  const absl::StatusOr<WorkflowResult> result =
      SimulateWorkflows(replicas, workflows, by_outstanding_work, {}, expected, {}, links);
  if (!result.ok()) return result.status();
  double last = 0;
  for (const double seconds : result->seconds) last = std::max(last, seconds);
  return last > 0 ? static_cast<double>(workflows.size()) / last : 0.0;
}

}  // namespace tessera::scheduler

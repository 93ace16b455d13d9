#include "scheduler/planner/attained_rate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "scheduler/simulator/goodput.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {
namespace {

// A rate is served if this much of it is: what is left is the luck of the draw.
constexpr double kServes = 0.98;
// Requests arrive for so many times as long as one stays in the system, so that it fills and
// settles.
constexpr double kStaysToSettle = 12;
// Where that takes more than so many times the requests that were asked for, nothing is simulated.
constexpr int64_t kMaxRequestsRatio = 3;
constexpr int kMaxRounds = 12;
constexpr double kAboveServed = 1.02;                  // of what a simulation of fewer requests saw
constexpr double kSmallStep = 0.98, kLargeStep = 0.4;  // of the rate, to the next one
constexpr int64_t kFewer = 5;                          // than all requests, to come near the rate

// In units of a planned step, of which a core simulates about a million a second: on any machine
// the same requests.
constexpr double kStepWork = 1, kRowWork = 0.02;
constexpr double kRounds = 3;  // of all seeds, that there should be time for

// What a request takes on average.
double StaySeconds(const v1::DeploymentPlan& plan) {
  return plan.prediction().time_to_first_token_seconds() +
         plan.prediction().time_per_output_token_seconds() * plan.basis().output_tokens();
}

// A rate, tried with requests of one seed.
struct Trial {
  double served = 1;  // of what comes
  bool enough = true;
};

class Attaining {
 public:
  Attaining(const AttainedQuestion& question, const PlanReplicas& replicas) : question_(question) {
    at_.replicas = &replicas;
    at_.classes = &question.workload->classes;
    at_.arrival_variation = question.workload->arrival_variation;
    at_.stop = question.watch.stop;
  }

  // A rate that a short run serves, not above `rate`; 0: none was found. Tells what a request
  // costs.
  absl::StatusOr<double> Near(double rate, int64_t requests) {
    at_.seed = 1;
    for (int round = 0; round < kMaxRounds; ++round) {
      const absl::StatusOr<Trial> trial = Try(rate, requests);
      if (!trial.ok()) return trial.status();
      if (trial->enough) return rate;
      rate *= std::clamp(trial->served, kLargeStep, kSmallStep);
    }
    return 0;
  }

  // A rate that every seed attains, not above `rate`; 0: none was found. Steps grow, so that it
  // takes few rounds.
  absl::StatusOr<double> Attained(double rate, int64_t requests) {
    double step = kSmallStep;
    for (int round = 0; round < kMaxRounds && rate > 0; ++round) {
      Trial trial;
      for (int seed = 1; seed <= question_.seeds && trial.enough; ++seed) {
        at_.seed = static_cast<uint64_t>(seed);
        absl::StatusOr<Trial> tried = Try(rate, requests);
        if (!tried.ok()) return tried.status();
        trial = *tried;
      }
      if (trial.enough) return rate;
      rate *= std::clamp(trial.served, kLargeStep, step);
      step = std::max(kLargeStep, step * step);
    }
    return 0;
  }

  double work_per_request() const { return requests_ > 0 ? work_ / requests_ : 0; }

 private:
  // What was tried before is known.
  absl::StatusOr<Trial> Try(double rate, int64_t requests) {
    const auto [at, fresh] = tried_.try_emplace({rate, requests, at_.seed});
    if (!fresh) return at->second;
    absl::StatusOr<Trial> trial = Simulated(rate, requests);
    if (trial.ok()) at->second = *trial;
    return trial;
  }

  absl::StatusOr<Trial> Simulated(double rate, int64_t requests) {
    at_.requests = requests;
    const absl::StatusOr<SimulationResult> result = SimulateAt(at_, rate);
    if (!result.ok()) return result.status();
    for (const ReplicaCounters& counters : result->counters) {
      work_ += kStepWork * static_cast<double>(counters.plans + counters.leaps) +
               static_cast<double>(counters.rows) * kRowWork;
    }
    requests_ += static_cast<double>(requests);
    Trial trial;
    trial.served = ReportOf(*result).steady_requests_per_second / rate;
    trial.enough = trial.served >= kServes &&
                   (question_.goal != Goal::kGoodput ||
                    EnoughAttained(*at_.classes, AttainedByClass(*result, *at_.classes)));
    return trial;
  }

  const AttainedQuestion& question_;
  GoodputQuestion at_;
  std::map<std::tuple<double, int64_t, uint64_t>, Trial> tried_;  // by rate, requests and seed
  double work_ = 0, requests_ = 0;
};

}  // namespace

absl::Status AddAttained(const AttainedQuestion& question, v1::DeploymentPlan* plan) {
  double rate = plan->prediction().requests_per_second();
  const double seen = plan->simulated().attained_requests_per_second();
  if (seen > 0) rate = std::min(rate, seen);
  // What is served of a promise that is too high is near the rate that is sought.
  const double served = plan->simulated().requests_per_second();
  if (served > 0) rate = std::min(rate, served * kAboveServed);
  if (!(rate > 0)) return absl::OkStatus();
  const auto fills = static_cast<int64_t>(std::ceil(kStaysToSettle * StaySeconds(*plan) * rate));
  if (fills > kMaxRequestsRatio * question.requests) return absl::OkStatus();
  const absl::StatusOr<PlanReplicas> replicas = ReplicasOfPlan(*plan, *question.graph, {});
  if (!replicas.ok()) return replicas.status();
  Attaining attaining(question, *replicas);
  const int64_t few = std::max(question.requests / kFewer, fills);
  const absl::StatusOr<double> near = attaining.Near(rate, few);
  if (!near.ok()) return near.status();
  // As many as there is time for.
  const double affordable =
      question.work / (kRounds * question.seeds * std::max(1e-9, attaining.work_per_request()));
  const int64_t requests = std::max(few, std::min(std::max(question.requests, fills),
                                                  static_cast<int64_t>(std::min(1e9, affordable))));
  const absl::StatusOr<double> attained = attaining.Attained(*near, requests);
  if (!attained.ok()) return attained.status();
  if (*attained <= 0) return absl::OkStatus();
  v1::SimulatedFigures& simulated = *plan->mutable_simulated();
  simulated.set_attained_requests_per_second(*attained);
  simulated.set_attained_requests(requests);
  simulated.set_attained_seeds(question.seeds);
  return absl::OkStatus();
}

}  // namespace tessera::scheduler

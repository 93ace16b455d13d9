#include "scheduler/simulator/goodput.h"

#include <memory>

#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/dispatcher.h"
#include "scheduler/simulator/report.h"

namespace tessera::scheduler {
namespace {

constexpr double kFilling = 0.1;  // of the time between first and last arrival
constexpr double kMinPart = 1.0 / 16;
constexpr double kStep = 1.3;  // away from it until one rate is enough and the next is not
constexpr double kResolution = 0.01;
constexpr double kServes = 0.9;  // of what comes, or a queue grows without end

// Whether a rate is served with enough in time; keeps the error of the first run that failed.
class Trial {
 public:
  explicit Trial(const GoodputQuestion& question) : question_(question) {}

  bool Enough(double rate) {
    if (!failed_.ok()) return false;
    const absl::StatusOr<SimulationResult> result = SimulateAt(question_, rate);
    if (!result.ok()) failed_ = result.status();
    return result.ok() && ReportOf(*result, {}).steady_requests_per_second >= kServes * rate &&
           EnoughAttained(*question_.classes, AttainedByClass(*result, *question_.classes));
  }

  // The largest that is enough of the rates from `low`, which is, to `high`, which is not.
  absl::StatusOr<double> Between(double low, double high, double resolution) {
    while (low > 0 && high - low > resolution && failed_.ok()) {
      const double middle = (low + high) / 2;
      (Enough(middle) ? low : high) = middle;
    }
    if (!failed_.ok()) return failed_;
    return low;
  }

  // From `high`, which is not enough, down to the first that is, in steps; 0: not at `least`.
  double Below(double least, double* high) {
    double low = *high / kStep;
    for (; low > least && !Enough(low); low /= kStep) *high = low;
    return low > least ? low : 0;
  }

 private:
  const GoodputQuestion& question_;
  absl::Status failed_;
};

}  // namespace

absl::StatusOr<SimulationResult> SimulateAt(const GoodputQuestion& question, double rate) {
  SimulationSetup setup;
  setup.replicas = question.replicas->replicas;
  setup.transfers = question.replicas->transfers;
  setup.requests = RequestsFromProcess(
      {rate, question.arrival_variation, question.requests, question.seed, true},
      *question.classes);
  AskForAtMost(0, &setup.requests);
  setup.stop = question.stop;
  const std::unique_ptr<Dispatcher> dispatcher =
      MakePlanDispatcher({{0, question.replicas->shares}});
  return Simulate(setup, dispatcher.get());
}

std::vector<double> AttainedByClass(const SimulationResult& result,
                                    const std::vector<RequestClass>& classes) {
  std::vector<double> within(classes.size(), 0), all(classes.size(), 0);
  if (result.requests.empty()) return std::vector<double>(classes.size(), 1);
  const double first = result.requests.front().arrival_seconds;
  const double from = first + kFilling * (result.requests.back().arrival_seconds - first);
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const SimulatedRequest& request = result.requests[i];
    if (request.arrival_seconds < from) continue;
    const auto c = static_cast<size_t>(request.request_class);
    all[c] += 1;
    within[c] += WithinLimits(request, result.outcomes[i], classes[c].limits) ? 1 : 0;
  }
  for (size_t c = 0; c < classes.size(); ++c) within[c] = all[c] > 0 ? within[c] / all[c] : 1;
  return within;
}

absl::StatusOr<double> SimulatedGoodputUpTo(const GoodputQuestion& question, double least,
                                            double most) {
  Trial trial(question);
  double low = 0, high = most;
  if (least > 0) {
    low = trial.Enough(least) ? least : 0;
    if (low > 0 && trial.Enough(most)) return most;
  } else if (trial.Enough(most)) {
    return most;
  } else {
    low = trial.Below(kMinPart * most, &high);
  }
  return trial.Between(low, high, kResolution * most);
}

}  // namespace tessera::scheduler
